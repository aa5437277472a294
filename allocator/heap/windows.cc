#include "allocator/heap/windows.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gapless {

std::optional<WindowSpot> Windows::find(Unit size, Reach reach) const {
  const FreePages free(home_, reach);
  for (const Extent& extent : extents_) {
    if (!may_have(extent, size, free) || windows_[extent.window].retired) continue;
    if (auto spot = find_in(extent, size, free)) return spot;
  }
  return {};
}

std::uint32_t Windows::free_before(const Window& window, std::uint32_t end, std::uint32_t floor,
                                   const FreePages& free) const {
  const std::uint32_t near = end - std::min(end - floor, kFewPages);
  std::uint32_t at = end;
  while (at > near && is_free(window.pages[at - 1], free)) --at;
  return at > near || at == floor ? at : runs_of(window).free_before(at, floor, free);
}

std::uint32_t Windows::free_from(const Window& window, std::uint32_t begin, std::uint32_t ceiling,
                                 const FreePages& free) const {
  const std::uint32_t near = begin + std::min(ceiling - begin, kFewPages);
  std::uint32_t at = begin;
  while (at < near && is_free(window.pages[at], free)) ++at;
  return at < near || at == ceiling ? at : runs_of(window).free_from(at, ceiling, free);
}

std::optional<WindowSpot> Windows::find_in(const Extent& extent, Unit size,
                                           const FreePages& free) const {
  const Reach& reach = free.reach();
  const WindowId id = extent.window;
  const Window& window = windows_[id];
  const std::vector<PageId>& pages = window.pages;
  const Unit page_units = home_.page_units();
  const std::uint32_t count = extent.end;
  const std::uint32_t least = least_whole(size);
  // A run may reach back into older extents; one that lies wholly in those was found there.
  const std::uint32_t back = std::min<std::uint32_t>(extent.begin, div_up(size, page_units));
  std::uint32_t begin = free_before(window, extent.begin, extent.begin - back, free);
  std::uint32_t free_to = extent.begin;  // [begin, free_to) is known to be free
  while (begin + least <= count) {
    // A used page at the far end of the shortest run rules out all runs over it: jump past it.
    const std::uint32_t shortest = std::max(begin + least, free_to);
    if (shortest > free_to && !is_free(pages[shortest - 1], free)) {
      begin = least == 1 ? runs_of(window).next_free(shortest, count, free) : shortest;
      free_to = begin;
      continue;
    }
    const std::uint32_t blocked = free_before(window, shortest, free_to, free);
    if (blocked > free_to) {
      free_to = shortest;
      begin = blocked;
      continue;
    }
    const std::uint32_t first = begin;
    const std::uint32_t end = free_from(window, shortest, count, free);
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
    free_to = begin;
  }
  return size <= most_in_edges() ? find_between(extent, size, free) : std::nullopt;
}

std::optional<WindowSpot> Windows::find_between(const Extent& extent, Unit size,
                                                const FreePages& free) const {
  const Window& window = windows_[extent.window];
  std::optional<WindowSpot> found;
  const auto look_at = [&](std::uint32_t place) {
    if (place == 0 || window.pages[place - 1] == kNoPage) return;
    const Unit prefix = home_.free_prefix(window.pages[place], free.reach());
    if (prefix == 0 || prefix >= size) return;  // a hole of the home would do
    if (prefix + home_.free_suffix(window.pages[place - 1], free.reach()) < size) return;
    found = WindowSpot{extent.window, place * home_.page_units() - (size - prefix), size};
  };
  runs_of(window).for_each(extent.begin, extent.end, [&](const PageRun& run) {
    // Neighbours in the home are neighbours there, where one stream's holes are one.
    const std::uint32_t end = free.is_of_bitmaps() ? run.place + 1 : run.end();
    for (std::uint32_t place = run.place; place < end && !found; ++place) look_at(place);
  });
  return found;
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
  add_extent(id, 0);
  return id;
}

void Windows::add_extent(WindowId id, std::uint32_t begin) {
  Window& window = windows_[id];
  window.extent_begins.push_back(begin);
  Extent extent{id, begin, static_cast<std::uint32_t>(window.pages.size())};
  extent.probe = window.pages[extent.probe_place()];
  extents_.push_back(extent);
}

void Windows::extend(WindowId id, const std::vector<PageId>& pages) {
  Window& window = windows_[id];
  const auto begin = static_cast<std::uint32_t>(window.pages.size());
  window.pages.insert(window.pages.end(), pages.begin(), pages.end());
  window.stale_runs = true;
  mapped_pages_ += pages.size();
  add_extent(id, begin);
}

Windows::Tail Windows::longest_tail(std::uint32_t most, Reach reach) const {
  const FreePages free(home_, reach);
  Tail longest;
  for (const Extent& extent : extents_) {
    const Window& window = windows_[extent.window];
    if (extent.begin != 0 || window.retired) continue;
    const auto count = static_cast<std::uint32_t>(window.pages.size());
    const std::uint32_t floor = count - std::min(most, count);
    const std::uint32_t tail = count - free_before(window, count, floor, free);
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
  window.stale_runs = true;
  const std::vector<std::uint32_t>& begins = window.extent_begins;
  const std::uint32_t first_end =
      begins.size() > 1 ? begins[1] : static_cast<std::uint32_t>(window.pages.size());
  const bool is_probe = place == first_end / 2 ||
                        std::find(begins.begin() + 1, begins.end(), place + 1) != begins.end();
  if (!is_probe) return;
  for (Extent& extent : extents_) {
    if (extent.window == id && extent.probe_place() == place) extent.probe = window.pages[place];
  }
}

void Windows::validate() const {
  const auto check = [](bool holds, const char* rule) {
    if (!holds) throw std::logic_error(std::string("windows: ") + rule);
  };
  for (const Extent& extent : extents_) {
    const std::vector<PageId>& pages = windows_[extent.window].pages;
    check(extent.begin < extent.end && extent.end <= pages.size(), "an extent outside its window");
    check(windows_[extent.window].stale_runs || windows_[extent.window].runs == PageRuns(pages),
          "runs that are not a window's pages");
    check(extent.probe == pages[extent.probe_place()], "an extent's probe is another page");
  }
}

std::vector<UnitRange> Windows::home_ranges(const WindowSpot& spot) const {
  const Unit page_units = home_.page_units();
  const Unit end = spot.begin + spot.size;
  std::vector<UnitRange> ranges;
  const auto last = static_cast<std::uint32_t>(div_up(end, page_units));
  runs_of(windows_[spot.window]).for_each(spot.begin / page_units, last, [&](const PageRun& run) {
    const Unit run_begin = std::max(run.place * page_units, spot.begin);
    const Unit run_end = std::min(run.end() * page_units, end);
    const Unit home_begin = run.page * page_units + (run_begin - run.place * page_units);
    ranges.push_back({home_begin, run_end - run_begin});
  });
  return ranges;
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
