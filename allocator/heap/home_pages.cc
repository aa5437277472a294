// Home: pages come and go, and where new ones would be best.
#include <algorithm>
#include <stdexcept>

#include "allocator/heap/home.h"

namespace gapless {

void Home::add_pages(PageRange pages, Owner owner, Epoch epoch) {
  const UnitRange range{pages.first * page_units_, pages.count * page_units_};
  const auto holder = std::find_if(absent_.begin(), absent_.end(), [&](BlockId id) {
    const Block& block = blocks_[id];
    return block.begin <= range.begin && range.begin + range.size <= block.end();
  });
  if (holder == absent_.end()) throw std::logic_error("home: these pages are present already");
  const BlockId id = *holder;
  Block& absent = blocks_[id];
  const Unit end = absent.end();
  const Unit range_end = range.begin + range.size;
  BlockId added = id;
  if (absent.begin < range.begin) {
    absent.size = range.begin - absent.begin;
    added = insert_after(id, range, BlockState::absent);
    if (range_end < end) {
      const BlockId rest = insert_after(added, {range_end, end - range_end}, BlockState::absent);
      absent_.insert(holder + 1, rest);
    }
  } else if (range_end < end) {
    added = insert_before(id, range, BlockState::absent);
    absent.begin = range_end;
    absent.size = end - range_end;
  } else {
    absent_.erase(holder);
  }
  present_.set_range(pages.first, pages.first + pages.count);
  free(added, owner, epoch);
}

void Home::remove_pages(PageRange pages) {
  const UnitRange range{pages.first * page_units_, pages.count * page_units_};
  BlockId id = carve(hole_at(range.begin), range, BlockState::absent);
  present_.clear_range(pages.first, pages.first + pages.count);
  frames_.separate(pages.first, pages.count);
  const auto place =
      std::lower_bound(absent_.begin(), absent_.end(), range.begin,
                       [&](BlockId absent, Unit begin) { return blocks_[absent].begin < begin; });
  absent_.insert(place, id);
  // Absent neighbours become one.
  for (std::size_t i = absent_.size(); i-- > 1;) {
    Block& lower = blocks_[absent_[i - 1]];
    const Block& upper = blocks_[absent_[i]];
    if (lower.end() != upper.begin) continue;
    lower.size += upper.size;
    unlink(absent_[i]);
    absent_.erase(absent_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::optional<PageRange> Home::growth_for(Unit size, Reach reach, bool barrier) const {
  std::optional<PageRange> best;
  for (const BlockId id : absent_) {
    const Block& absent = blocks_[id];
    const PageId room = absent.size / page_units_;
    PageRange candidate;
    if (barrier) {
      const bool low = absent.begin != 0;
      const bool high = absent.end() != max_pages_ * page_units_;
      const PageId need = page_up(size);
      if (need + (low ? 1 : 0) + (high ? 1 : 0) > room) continue;
      candidate = {absent.begin / page_units_ + (low ? 1 : 0), need};
    } else {
      Unit have = 0;
      if (absent.prev != 0) {
        const Block& below = blocks_[absent.prev];
        if (below.state == BlockState::hole && usable(below, reach)) have = free_end(below, reach);
      }
      PageId need = page_up(size > have ? size - have : 0);
      if (need > room) continue;
      candidate = {absent.begin / page_units_, std::max<PageId>(need, 1)};
    }
    if (!best || candidate.count < best->count) best = candidate;
  }
  return best;
}

Unit Home::free_end(const Block& hole, Reach reach) const {
  if (reach.except == nullptr) return hole.size;
  Unit begin = hole.end();
  while (begin > hole.begin && !is_excepted(page_down(begin - 1), reach)) {
    begin = std::max(hole.begin, page_down(begin - 1) << page_shift_);
  }
  return hole.end() - begin;
}

BlockId Home::hole_below(PageId first, Reach reach) const {
  const Unit at = first << page_shift_;
  for (const BlockId id : absent_) {
    if (blocks_[id].begin != at) continue;
    const BlockId below = blocks_[id].prev;
    if (blocks_[below].state == BlockState::hole && usable(blocks_[below], reach)) return below;
  }
  return 0;
}

PageRange Home::absent_to_frame_end(PageRange pages, FrameOrder order) const {
  const PageId inside = (PageId{1} << order) - 1;
  const PageId end = (pages.first + pages.count + inside) & ~inside;
  for (const BlockId id : absent_) {
    const Block& absent = blocks_[id];
    const bool holds = absent.begin <= pages.first << page_shift_;
    if (holds && std::uint64_t{end} << page_shift_ <= absent.end() &&
        pages.first << page_shift_ < absent.end()) {
      return {pages.first, end - pages.first};
    }
  }
  return pages;
}

std::optional<PageRange> Home::absent_run(PageId count) const {
  if (absent_.empty()) return {};
  const Block& absent = blocks_[absent_.front()];
  return PageRange{absent.begin / page_units_, std::min(count, absent.size / page_units_)};
}

}  // namespace gapless
