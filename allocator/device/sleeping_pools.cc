#include "allocator/device/sleeping_pools.h"

namespace gapless {

std::vector<PageId> SleepingPools::frames_only_of(PoolIndex pool,
                                                  std::span<const BlockId> blocks) const {
  const Unit page_units = home_.page_units();
  std::vector<Unit> units(home_.max_pages(), 0);
  const auto add = [&](const Block& block) {
    for (Unit at = block.begin; at < block.end();) {
      const PageId page = at / page_units;
      const Unit end = std::min<Unit>((page + 1) * page_units, block.end());
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
    if (block.state == BlockState::hole && sets_.pool_of(block.owner) == pool) add(block);
  });
  std::vector<PageId> pages;
  const Frames& frames = home_.frames();
  for (PageId page = 0; page < units.size(); page = frames.end(page)) {
    const auto is_full = [&](Unit used) { return used == page_units; };
    const auto begin = units.begin() + page;
    const bool full = std::all_of(begin, begin + frames.pages(page), is_full);
    if (full && !home_mapper_.is_on_host(page)) pages.push_back(page);
  }
  return pages;
}

DriverStatus SleepingPools::put_to_sleep(PoolIndex pool, std::span<const BlockId> blocks) {
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

DriverStatus SleepingPools::wake(PoolIndex pool) {
  const auto found = asleep_.find(pool);
  if (found == asleep_.end()) return DriverStatus::ok;
  Asleep& asleep = found->second;
  DriverStatus status = home_mapper_.wake(asleep.frames);
  if (status == DriverStatus::ok) {
    status = mapper_.map_places(asleep.places, home_mapper_.handles());
  }
  if (status == DriverStatus::ok) asleep_.erase(found);
  return status;
}

void SleepingPools::forget(PoolIndex pool) {
  const auto found = asleep_.find(pool);
  if (found == asleep_.end()) return;
  for (const WindowPlace& place : found->second.places) mapper_.forget_asleep(place);
  for (const PageId page : found->second.frames) {
    home_.remove_pages({page, home_.frames().pages(page)});
  }
  asleep_.erase(found);
}

}  // namespace gapless
