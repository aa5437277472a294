// DeviceHeap asleep: a pool's physical pages go back to the device while every address stays taken.
//
//   awake    home | weights | weights | cache | other |     pages 0 1 2 3, all there
//   asleep   home |    .    |    .    |   .   | other |     pages 0 1 2 unmapped and released
//   awake    home | weights | weights | cache | other |     other memory, at the same addresses
//
// Pages go that hold nothing but the pool's blocks and holes; one that it shares with others stays,
// and so does host memory (spill.cc), which is none of the device's.
// They are unmapped in every window too; where a live block lies in one, the place is remembered
// and filled again. Contents are the caller's matter (DeviceAllocator saves them).
#include <algorithm>

#include "allocator/device/device_heap.h"

namespace gapless {

std::vector<PageId> DeviceHeap::frames_only_of(PoolIndex pool,
                                               std::span<const BlockId> blocks) const {
  std::vector<Unit> units(home_.max_pages(), 0);
  const auto add = [&](const Block& block) {
    for (Unit at = block.begin; at < block.end();) {
      const PageId page = at >> page_shift_;
      const Unit end = std::min<Unit>((page + 1) << page_shift_, block.end());
      units[page] += end - at;
      at = end;
    }
  };
  for (const BlockId id : blocks) {
    if (blocks_[id].state == BlockState::live) add(blocks_[id]);
    if (blocks_[id].state != BlockState::window) continue;
    for (BlockId lent = blocks_[id].link_next; lent != 0; lent = blocks_[lent].link_next) {
      add(blocks_[lent]);
    }
  }
  home_.for_each([&](BlockId, const Block& block) {
    const bool free = block.state == BlockState::hole;
    if (free && streams_.sets().pool_of(block.owner) == pool) add(block);
  });
  std::vector<PageId> pages;
  const Frames& frames = home_.frames();
  for (PageId page = 0; page < units.size(); page = frames.end(page)) {
    const auto is_full = [&](Unit used) { return used == page_units_; };
    const auto begin = units.begin() + page;
    const bool full = std::all_of(begin, begin + frames.pages(page), is_full);
    if (full && !is_spilled(page << page_shift_)) pages.push_back(page);
  }
  return pages;
}

DriverStatus DeviceHeap::sleep(PoolIndex pool, std::span<const BlockId> blocks) {
  if (const DriverStatus status = finish_streams(); status != DriverStatus::ok) return status;
  Asleep& asleep = asleep_[pool];
  for (const PageId page : frames_only_of(pool, blocks)) {
    DriverStatus status = mapper_.unmap_frame(page, asleep.places);
    if (status == DriverStatus::ok) status = home_mapper_.put_to_sleep(page);
    if (status != DriverStatus::ok) {
      (void)wake(pool);
      return status;
    }
    asleep.frames.push_back(page);
  }
  return DriverStatus::ok;
}

DriverStatus DeviceHeap::wake(PoolIndex pool) {
  const auto found = asleep_.find(pool);
  if (found == asleep_.end()) return DriverStatus::ok;
  Asleep& asleep = found->second;
  DriverStatus status = home_mapper_.wake(asleep.frames);
  if (status == DriverStatus::ok) status = mapper_.map_places(asleep.places, home_mapper_.handles());
  if (status == DriverStatus::ok) asleep_.erase(found);
  return status;
}

PageId DeviceHeap::pages_asleep() const {
  PageId count = 0;
  for (const auto& [pool, asleep] : asleep_) {
    for (const PageId page : asleep.frames) count += home_.frames().pages(page);
  }
  return count;
}

void DeviceHeap::forget_asleep(PoolIndex pool) {
  const auto found = asleep_.find(pool);
  if (found == asleep_.end()) return;
  unite_pool(pool);  // a page that several streams share is one hole then
  for (const WindowPlace& place : found->second.places) {
    mapper_.forget_asleep(place);
  }
  for (const PageId page : found->second.frames) {
    home_.remove_pages({page, home_.frames().pages(page)});
  }
  asleep_.erase(found);
}

}  // namespace gapless
