#include "allocator/heap/windows.h"

#include <algorithm>

namespace gapless {

std::optional<WindowSpot> Windows::find(Unit size, Owner owner) const {
  for (const WindowId id : order_) {
    if (windows_[id].retired) continue;
    if (auto spot = find_in(id, size, owner)) return spot;
  }
  return {};
}

std::optional<WindowSpot> Windows::find_in(WindowId id, Unit size, Owner owner) const {
  const std::vector<PageId>& pages = windows_[id].pages;
  const Unit page_units = home_.page_units();
  const auto count = static_cast<std::uint32_t>(pages.size());
  // Wholly free pages a run needs at least: all of the size, or all but what two edges can give.
  const Unit edges = edge_sharing_ ? 2 * (page_units - 1) : 0;
  const auto least =
      std::max<std::uint32_t>(1, size > edges ? (size - edges + page_units - 1) / page_units : 1);
  for (std::uint32_t begin = 0; begin + least <= count;) {
    // A used page at the far end of the shortest run rules out all runs over it: jump past it.
    std::uint32_t blocked = begin + least;
    while (blocked > begin && is_free(pages[blocked - 1], owner)) --blocked;
    if (blocked != begin) {
      begin = blocked;
      continue;
    }
    std::uint32_t first = begin;
    std::uint32_t end = begin + least;
    while (end < count && is_free(pages[end], owner)) ++end;
    const Unit whole = (end - first) * page_units;
    if (whole >= size) return WindowSpot{id, first * page_units, size};
    if (edge_sharing_) {
      Unit prefix = 0;
      Unit suffix = 0;
      if (end < count && pages[end] != kNoPage) prefix = home_.free_prefix(pages[end], owner);
      if (first > 0 && pages[first - 1] != kNoPage) {
        suffix = home_.free_suffix(pages[first - 1], owner);
      }
      if (whole + prefix >= size) return WindowSpot{id, first * page_units, size};
      if (whole + prefix + suffix >= size) {
        return WindowSpot{id, first * page_units - (size - whole - prefix), size};
      }
    }
    begin = end + 1;
  }
  return {};
}

WindowId Windows::add(std::uint64_t address, std::vector<PageId> pages) {
  WindowId id = 0;
  if (free_ids_.empty()) {
    id = static_cast<WindowId>(windows_.size());
    windows_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  mapped_pages_ += pages.size();
  windows_[id] = Window{};
  windows_[id].address = address;
  windows_[id].pages = std::move(pages);
  windows_[id].last_use = ++uses_;
  order_.push_back(id);
  return id;
}

void Windows::remove(WindowId id) {
  const std::vector<PageId>& pages = windows_[id].pages;
  mapped_pages_ -= pages.size() - static_cast<std::size_t>(
                                      std::count(pages.begin(), pages.end(), kNoPage));
  windows_[id] = Window{};
  order_.erase(std::find(order_.begin(), order_.end(), id));
  free_ids_.push_back(id);
}

void Windows::drop_page(WindowId id, std::uint32_t place) {
  windows_[id].pages[place] = kNoPage;
  --mapped_pages_;
}

std::vector<UnitRange> Windows::home_ranges(const WindowSpot& spot) const {
  const std::vector<PageId>& pages = windows_[spot.window].pages;
  const Unit page_units = home_.page_units();
  std::vector<UnitRange> ranges;
  const Unit end = spot.begin + spot.size;
  for (Unit at = spot.begin; at < end;) {
    const Unit inside = at % page_units;
    const Unit part = std::min(page_units - inside, end - at);
    const Unit begin = pages[at / page_units] * page_units + inside;
    if (!ranges.empty() && ranges.back().begin + ranges.back().size == begin) {
      ranges.back().size += part;
    } else {
      ranges.push_back({begin, part});
    }
    at += part;
  }
  return ranges;
}

std::optional<WindowId> Windows::least_recently_used() const {
  std::optional<WindowId> oldest;
  for (const WindowId id : order_) {
    const Window& window = windows_[id];
    if (window.live_blocks != 0 || window.retired) continue;
    if (!oldest || window.last_use < windows_[*oldest].last_use) oldest = id;
  }
  return oldest;
}

}  // namespace gapless
