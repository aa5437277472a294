#include "allocator/heap/windows.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gapless {

std::optional<WindowSpot> Windows::find(Unit size, Reach reach) const {
  for (const Extent& extent : extents_) {
    if (!may_have(extent, size, reach) || windows_[extent.window].retired) continue;
    if (auto spot = find_in(extent, size, reach)) return spot;
  }
  return {};
}

std::optional<WindowSpot> Windows::find_in(const Extent& extent, Unit size, Reach reach) const {
  const WindowId id = extent.window;
  const std::vector<PageId>& pages = windows_[id].pages;
  const Unit page_units = home_.page_units();
  const std::uint32_t count = extent.end;
  const std::uint32_t least = least_whole(size);
  // A run may reach back into older extents; one that lies wholly in those was found there.
  std::uint32_t start = extent.begin;
  while (start > 0 && (extent.begin - start) * page_units < size &&
         is_free(pages[start - 1], reach)) {
    --start;
  }
  for (std::uint32_t begin = start; begin + least <= count;) {
    // A used page at the far end of the shortest run rules out all runs over it: jump past it.
    std::uint32_t blocked = begin + least;
    while (blocked > begin && is_free(pages[blocked - 1], reach)) --blocked;
    if (blocked != begin) {
      begin = blocked;
      continue;
    }
    std::uint32_t first = begin;
    std::uint32_t end = begin + least;
    while (end < count && is_free(pages[end], reach)) ++end;
    const Unit whole = (end - first) * page_units;
    if (whole >= size) {
      const Unit skip = edge_sharing_ && size % page_units != 0 && home_.prefers_free_prefix()
                            ? page_units - size % page_units
                            : 0;
      return WindowSpot{id, first * page_units + skip, size};
    }
    if (edge_sharing_) {
      Unit prefix = 0;
      Unit suffix = 0;
      if (end < count && pages[end] != kNoPage) prefix = home_.free_prefix(pages[end], reach);
      if (first > 0 && pages[first - 1] != kNoPage) {
        suffix = home_.free_suffix(pages[first - 1], reach);
      }
      if (whole + prefix >= size) return WindowSpot{id, first * page_units, size};
      if (whole + prefix + suffix >= size) {
        return WindowSpot{id, first * page_units - (size - whole - prefix), size};
      }
    }
    begin = end + 1;
  }
  return size <= most_in_edges() ? find_between(extent, size, reach) : std::nullopt;
}

std::optional<WindowSpot> Windows::find_between(const Extent& extent, Unit size,
                                                Reach reach) const {
  const std::vector<PageId>& pages = windows_[extent.window].pages;
  for (std::uint32_t place = std::max<std::uint32_t>(1, extent.begin); place < extent.end;
       ++place) {
    if (pages[place - 1] == kNoPage || pages[place] == kNoPage) continue;
    const Unit prefix = home_.free_prefix(pages[place], reach);
    if (prefix == 0 || prefix >= size) continue;  // a hole of the home would do
    if (prefix + home_.free_suffix(pages[place - 1], reach) < size) continue;
    return WindowSpot{extent.window, place * home_.page_units() - (size - prefix), size};
  }
  return {};
}

bool Windows::is_free(const WindowSpot& spot, Reach reach) const {
  const Window& window = windows_[spot.window];
  const Unit page_units = home_.page_units();
  const Unit end = spot.begin + spot.size;
  if (window.retired || (end + page_units - 1) / page_units > window.pages.size()) return false;
  for (Unit at = spot.begin; at < end;) {
    const PageId page = window.pages[at / page_units];
    const Unit inside = at % page_units;
    const Unit part = std::min(page_units - inside, end - at);
    if (page == kNoPage) return false;
    const bool whole = part == page_units && home_.is_free(page, reach);
    if (!whole && !home_.is_free({page * page_units + inside, part}, reach)) return false;
    at += part;
  }
  return true;
}

WindowId Windows::add(std::uint64_t address, std::uint32_t room, std::vector<PageId> pages) {
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
  windows_[id].room = room;
  windows_[id].pages = std::move(pages);
  windows_[id].last_use = ++uses_;
  const auto places = static_cast<std::uint32_t>(windows_[id].pages.size());
  windows_[id].first_places = places;
  extents_.push_back({id, 0, places, windows_[id].pages[places / 2]});
  return id;
}

void Windows::extend(WindowId id, const std::vector<PageId>& pages) {
  Window& window = windows_[id];
  const auto begin = static_cast<std::uint32_t>(window.pages.size());
  window.pages.insert(window.pages.end(), pages.begin(), pages.end());
  mapped_pages_ += pages.size();
  extents_.push_back({id, begin, static_cast<std::uint32_t>(window.pages.size())});
}

Windows::Tail Windows::longest_tail(std::uint32_t most, Reach reach) const {
  Tail longest;
  for (const Extent& extent : extents_) {
    const Window& window = windows_[extent.window];
    if (extent.begin != 0 || window.retired) continue;
    const auto count = static_cast<std::uint32_t>(window.pages.size());
    std::uint32_t tail = 0;
    while (tail < std::min(most, count) && is_free(window.pages[count - 1 - tail], reach)) ++tail;
    if (tail > longest.pages && count + (most - tail) <= window.room) {
      longest = {extent.window, tail};
    }
  }
  return longest;
}

void Windows::remove(WindowId id) {
  const std::vector<PageId>& pages = windows_[id].pages;
  mapped_pages_ -=
      pages.size() - static_cast<std::size_t>(std::count(pages.begin(), pages.end(), kNoPage));
  windows_[id] = Window{};
  std::erase_if(extents_, [id](const Extent& extent) { return extent.window == id; });
  free_ids_.push_back(id);
}

void Windows::drop_page(WindowId id, std::uint32_t place) {
  windows_[id].pages[place] = kNoPage;
  --mapped_pages_;
  note_page(id, place);
}

void Windows::set_page(WindowId id, std::uint32_t place, PageId page) {
  windows_[id].pages[place] = page;
  ++mapped_pages_;
  note_page(id, place);
}

void Windows::note_page(WindowId id, std::uint32_t place) {
  const Window& window = windows_[id];
  if (place != window.first_places / 2) return;
  const auto first = std::find_if(extents_.begin(), extents_.end(), [&](const Extent& extent) {
    return extent.window == id && extent.begin == 0;
  });
  first->middle = window.pages[place];
}

void Windows::validate() const {
  const auto check = [](bool holds, const char* rule) {
    if (!holds) throw std::logic_error(std::string("windows: ") + rule);
  };
  for (const Extent& extent : extents_) {
    const std::vector<PageId>& pages = windows_[extent.window].pages;
    check(extent.begin < extent.end && extent.end <= pages.size(), "an extent outside its window");
    if (extent.begin != 0) continue;
    check(extent.middle == pages[extent.end / 2], "an extent's middle is another page");
  }
}

std::vector<UnitRange> Windows::home_ranges(const std::vector<PageId>& pages, Unit begin_at,
                                            Unit size) const {
  const Unit page_units = home_.page_units();
  std::vector<UnitRange> ranges;
  const Unit end = begin_at + size;
  for (Unit at = begin_at; at < end;) {
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
  for_each([&](WindowId id, const Window& window) {
    if (!window.live.empty() || window.retired || !window.may_change()) return;
    if (!oldest || window.last_use < windows_[*oldest].last_use) oldest = id;
  });
  return oldest;
}

}  // namespace gapless
