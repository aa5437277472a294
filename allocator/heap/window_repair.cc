// WindowPlanner: exchanging pages in a window that is there (window_planner.h).
//
//   places    0   1   2   3   4   5           3 and 4 are of one frame, in use elsewhere
//   window  [ 3 | 7 | 8 | 12  13 | 9 ]        places 1, 3 and 4 are open: gaps of one and of two
//   filled  [ 3 | 4 | 8 | 20  21 | 9 ]        a single page, and a pair or two single ones
#include <algorithm>

#include "allocator/base/bytes.h"
#include "allocator/heap/window_planner.h"

namespace gapless {

// What is to be exchanged of a window's places, each with those before it: places that are not
// free, those that may not change since a live block lies in their frame, and the begins of runs
// that are unmapped.
struct WindowPlanner::Places {
  std::vector<std::uint32_t> used;
  std::vector<std::uint32_t> fixed;
  std::vector<std::uint32_t> begins;
  std::vector<bool> unmaps;
  PageId usable = 0;          // wholly free pages in the window
  PageId usable_singles = 0;  // of them, those that are frames of their own
};

bool WindowPlanner::look_at_places(const Window& window, const Edges& edges, std::uint32_t end,
                                   Reach reach, Places& places) const {
  const auto count = static_cast<std::uint32_t>(window.pages.size());
  places.used.assign(end + 1, 0);
  places.fixed.assign(end + 1, 0);
  places.begins.assign(end + 1, 0);
  places.unmaps.assign(end + 1, false);
  for (const UnitRange& range : window.live) {
    for (Unit at = range.begin / page_units_; at * page_units_ < range.begin + range.size; ++at) {
      const PageId page = window.pages[at];
      // An edge that must stay where it is cannot serve at another place too.
      if (is_edge(edges, page)) return false;
      const Unit first = at - (page - frames_.begin(page));
      for (PageId i = 0; i < frames_.pages(page); ++i) places.fixed[first + i + 1] = 1;
    }
  }
  for (std::uint32_t place = 0; place < end; ++place) {
    const PageId page = place < count ? window.pages[place] : kNoPage;
    const bool free = page != kNoPage && home_.is_free(page, reach);
    places.usable += free ? 1 : 0;
    places.usable_singles += free && frames_.pages(page) == 1 ? 1 : 0;
    places.unmaps[place] = page != kNoPage && !free;
    places.used[place + 1] = places.used[place] + (free ? 0 : 1);
    places.fixed[place + 1] += places.fixed[place];
    const bool begins = places.unmaps[place] && (place == 0 || !places.unmaps[place - 1]);
    places.begins[place + 1] = places.begins[place] + (begins ? 1 : 0);
  }
  return true;
}

bool WindowPlanner::keeps_frames(const Window& window, const Places& places, const Edges& edges,
                                 std::uint32_t first) const {
  // Where an exchanged place and one that stays meet, or an edge and another, no frame may lie.
  const auto cuts = [&](std::uint32_t place) {
    if (place >= window.pages.size()) return false;
    const PageId page = window.pages[place];
    return page != kNoPage && frames_.begin(page) != page;
  };
  const auto is_open = [&](std::uint32_t place) {
    return places.used[place + 1] != places.used[place];
  };
  const std::uint32_t after = first + edges.places();
  if ((edges.lead != 0 || is_open(first)) && cuts(first)) return false;
  if (edges.lead != 0 && cuts(first + edges.lead)) return false;
  if (edges.trail != 0 && cuts(after - edges.trail)) return false;
  return !((edges.trail != 0 || is_open(after - 1)) && cuts(after));
}

std::vector<UnitRange> WindowPlanner::gaps_in(const Places& places, std::uint32_t begin,
                                              std::uint32_t end) {
  std::vector<UnitRange> gaps;
  for (std::uint32_t place = begin; place < end; ++place) {
    if (places.used[place + 1] == places.used[place]) continue;
    if (!gaps.empty() && gaps.back().begin + gaps.back().size == place) {
      ++gaps.back().size;
    } else {
      gaps.push_back({place, 1});
    }
  }
  return gaps;
}

void WindowPlanner::find_run(WindowId id, const Edges& edges, Supply supply, Reach reach,
                             Run& best) const {
  const Window& window = windows_.at(id);
  const auto count = static_cast<std::uint32_t>(window.pages.size());
  const std::uint32_t length = edges.places();
  const std::uint32_t end = std::min(std::max(window.room, count), count + length);
  Places places;
  if (!look_at_places(window, edges, end, reach, places)) return;
  const bool pairs = frames_.any_pairs();
  for (std::uint32_t first = 0; first < count && first + length <= end; ++first) {
    const std::uint32_t after = first + length;
    if (places.fixed[after] != places.fixed[first]) continue;
    const bool cuts = first != 0 && places.unmaps[first] && places.unmaps[first - 1];
    const std::uint32_t begin = first + edges.lead;
    const std::uint32_t filled = places.used[after - edges.trail] - places.used[begin];
    // Pages the window has elsewhere must leave there first: none may stand twice in it.
    const PageId spare = supply.pages;
    const std::uint32_t moved = filled + places.usable > spare ? filled + places.usable - spare : 0;
    const std::uint32_t unmapped = places.begins[after] - places.begins[first] + (cuts ? 1 : 0);
    const std::uint32_t calls = edges.lead + filled + edges.trail + moved + unmapped + 1;
    if (calls >= best.calls) continue;
    if (pairs) {
      if (moved != 0 || !keeps_frames(window, places, edges, first)) continue;
      // Gaps of an odd length need a single page each; two of those make up for a pair.
      PageId odd = 0;
      for (const UnitRange& gap : gaps_in(places, begin, after - edges.trail)) odd += gap.size % 2;
      const PageId singles = supply.singles - places.usable_singles;
      const PageId paired = spare - places.usable - singles;
      if (odd > singles || filled - odd > paired + (singles - odd) / 2 * 2) continue;
    }
    best = {id, first, calls, edges.whole};
  }
}

std::optional<WindowPlan> WindowPlanner::plan_repair(Unit size, Reach reach,
                                                     std::span<const WindowId> idle,
                                                     std::uint32_t calls_below,
                                                     PageId comfort) const {
  Supply supply;
  for (const PageRange& run : home_.free_runs(reach)) {
    supply.pages += run.count;
    for (PageId page = run.first; page < run.first + run.count; ++page) {
      supply.singles += frames_.pages(page) == 1 ? 1 : 0;
    }
  }
  Edges edges;
  edges.whole = static_cast<PageId>(div_up(size, page_units_));
  if (edges.whole > supply.pages + comfort) edges = choose_edges(size, reach, true);
  const PageId missing = edges.whole > supply.pages ? edges.whole - supply.pages : 0;
  supply.pages += missing;
  supply.singles += missing;
  Run best{0, 0, calls_below, 0};
  for (const WindowId id : idle) {
    find_run(id, edges, supply, reach, best);
    if (!frames_.any_pairs() || edges.lead != 0 || edges.trail != 0) continue;
    Edges longer = edges;  // to the end of the last frame
    ++longer.whole;
    find_run(id, longer, supply, reach, best);
  }
  if (best.calls == calls_below) return {};
  if (missing != 0) {
    WindowPlan plan;
    plan.missing = missing;
    plan.calls = best.calls;
    return plan;
  }
  edges.whole = best.whole;
  return plan_run(best, size, edges, reach);
}

WindowPlan WindowPlanner::plan_run(const Run& run, Unit size, const Edges& edges,
                                   Reach reach) const {
  const Window& window = windows_.at(run.window);
  const std::vector<PageId>& held = window.pages;
  const std::uint32_t after = run.first + edges.places();
  WindowPlan plan;
  plan.window = run.window;
  plan.calls = run.calls;
  plan.begin = (run.first + edges.lead) * page_units_ - edges.suffix;
  if (edges.lead == 0 && edges.trail == 0) plan.begin += skipped_begin(size);
  const auto add_edge = [&](std::uint32_t place, PageId page, std::uint32_t places) {
    for (std::uint32_t i = 0; i < places; ++i) plan.fills.push_back({place + i, page + i});
  };
  add_edge(run.first, edges.suffix_page, edges.lead);
  Places places;
  (void)look_at_places(window, edges, std::max<std::uint32_t>(after, held.size()), reach, places);
  const std::uint32_t first = run.first + edges.lead;
  const std::uint32_t last = after - edges.trail;
  fill_gaps(plan, window, gaps_in(places, first, last), {first, last - first}, reach);
  add_edge(last, edges.prefix_page, edges.trail);
  // No page may stand twice in it.
  std::vector<PageId> filled;
  for (const WindowPlan::Fill& fill : plan.fills) filled.push_back(fill.page);
  std::sort(filled.begin(), filled.end());
  for (std::uint32_t place = 0; place < held.size(); ++place) {
    const bool outside = place < run.first || place >= after;
    if (outside && std::binary_search(filled.begin(), filled.end(), held[place])) {
      plan.drops.push_back(place);
    }
  }
  return plan;
}

void WindowPlanner::fill_gaps(WindowPlan& plan, const Window& window,
                              const std::vector<UnitRange>& gaps, UnitRange between,
                              Reach reach) const {
  PageId odd = 0;
  PageId twos = 0;
  for (const UnitRange& gap : gaps) {
    odd += gap.size % 2;
    twos += gap.size / 2;
  }
  std::vector<PageId> singles;
  std::vector<PageId> pairs;
  for (const PageId page : free_frames(2 * twos + odd, window.pages, reach)) {
    if (frames_.pages(page) == 1) {
      singles.push_back(page);
    } else if (pairs.size() < twos) {
      pairs.push_back(page);
    }
  }
  const std::size_t wanted = odd + 2 * (twos - pairs.size());
  // The ends are exchanged too: free pages there may be used in between.
  for (std::uint32_t place = 0; place < window.pages.size() && singles.size() < wanted; ++place) {
    const bool stays = place >= between.begin && place < between.begin + between.size;
    const PageId page = window.pages[place];
    if (!stays && page != kNoPage && home_.is_free(page, reach)) singles.push_back(page);
  }
  singles.resize(wanted, kNoPage);
  std::sort(pairs.begin(), pairs.end());
  std::sort(singles.begin(), singles.end());
  auto single = singles.begin();
  auto pair = pairs.begin();
  for (const UnitRange& gap : gaps) {
    Unit place = gap.begin;
    const Unit end = gap.begin + gap.size;
    while (place < end) {
      if (end - place >= 2 && pair != pairs.end()) {
        plan.fills.push_back({place++, *pair});
        plan.fills.push_back({place++, *pair++ + 1});
      } else {
        plan.fills.push_back({place++, *single++});
      }
    }
  }
}

}  // namespace gapless
