// WindowPlanner: exchanging pages in a window that is there (window_planner.h).
//
//   places    0   1   2   3   4   5           3 and 4 are of one frame, in use elsewhere
//   window  [ 3 | 7 | 8 | 12  13 | 9 ]        places 1, 3 and 4 are open: gaps of one and of two
//   filled  [ 3 | 5 | 8 | 20  21 | 9 ]        a single page, and a frame of two or two single ones
//
// Frames have 2^k pages, so a gap can be filled largest first, and what is wanted of each order
// follows from the binary digits of the gaps' lengths.
#include <algorithm>

#include "allocator/base/bytes.h"
#include "allocator/heap/window_planner.h"

namespace gapless {

// What is to be exchanged of a window's places, each with those before it: places that are not
// free, those that may not change since a live block lies there, and the begins of runs that are
// unmapped.
struct WindowPlanner::Places {
  std::vector<std::uint32_t> used;
  std::vector<std::uint32_t> fixed;
  std::vector<std::uint32_t> begins;
  std::vector<bool> unmaps;
  PageId usable = 0;                // wholly free pages in the window
  ByOrder<PageId> usable_frames{};  // and the frames they are
};

bool WindowPlanner::look_at_places(const Window& window, const Edges& edges, std::uint32_t end,
                                   const Bitmap& free_pages, Places& places) const {
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
      places.fixed[at + 1] = 1;  // and so the rest of its frame: keeps_frames()
    }
  }
  for (std::uint32_t place = 0; place < end; ++place) {
    const PageId page = place < count ? window.pages[place] : kNoPage;
    const bool free = page != kNoPage && free_pages.test(page);
    places.usable += free ? 1 : 0;
    if (free && frames_.begin(page) == page) ++places.usable_frames[frames_.order(page)];
    places.unmaps[place] = page != kNoPage && !free;
    places.used[place + 1] = places.used[place] + (free ? 0 : 1);
    places.fixed[place + 1] += places.fixed[place];
    const bool begins = places.unmaps[place] && (place == 0 || !places.unmaps[place - 1]);
    places.begins[place + 1] = places.begins[place] + (begins ? 1 : 0);
  }
  return true;
}

std::uint32_t WindowPlanner::places_to_frame(const Window& window, std::uint32_t place) const {
  if (place >= window.pages.size() || window.pages[place] == kNoPage) return 0;
  return frames_.up(window.pages[place]) - window.pages[place];
}

bool WindowPlanner::keeps_frames(const Window& window, const Places& places, const Edges& edges,
                                 std::uint32_t first, std::uint32_t after) const {
  // Where an exchanged place and one that stays meet, or an edge and another, no frame may lie.
  const auto cuts = [&](std::uint32_t place) { return places_to_frame(window, place) != 0; };
  const auto is_open = [&](std::uint32_t place) {
    return places.used[place + 1] != places.used[place];
  };
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

bool WindowPlanner::can_fill(const std::vector<UnitRange>& gaps, const ByOrder<PageId>& supply) {
  const ByOrder<PageId> wanted = frames_wanted(gaps);
  PageId made_up = 0;  // frames of this order that smaller ones can make up
  for (FrameOrder order = 0; order < kLargestOrder; ++order) {
    const PageId there = supply[order] + made_up;
    if (there < wanted[order]) return false;
    made_up = (there - wanted[order]) / 2;
  }
  return supply[kLargestOrder] + made_up >= wanted[kLargestOrder];
}

void WindowPlanner::find_run(WindowId id, const Edges& edges, const Supply& supply,
                             const Bitmap& free, Run& best) const {
  const Window& window = windows_.at(id);
  // Most windows hold too few free pages for a run with fewer calls, wherever it begins.
  PageId held = 0;
  windows_.runs_of(window).for_each(0, UINT32_MAX, [&](const PageRun& run) {
    held += free.count_in(run.page, run.page + run.count);
  });
  const PageId others = edges.whole - std::min(edges.whole, held);
  if (edges.lead + others + edges.trail + 1 >= best.calls) return;
  const auto count = static_cast<std::uint32_t>(window.pages.size());
  const std::uint32_t end = std::min(std::max(window.room, count), count + edges.places());
  Places places;
  if (!look_at_places(window, edges, end, free, places)) return;
  ByOrder<PageId> elsewhere = supply.frames;
  for (FrameOrder order = 0; order <= kLargestOrder; ++order)
    elsewhere[order] -= places.usable_frames[order];
  for (std::uint32_t first = 0; first < count; ++first) {
    // To the end of the last frame, where no edge is the end.
    std::uint32_t after = first + edges.places();
    const bool has_edges = edges.lead != 0 || edges.trail != 0;
    const std::uint32_t more = has_edges ? 0 : places_to_frame(window, after);
    after += more;
    if (after > end) break;
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
    if (frames_.any_joined() &&
        (moved != 0 || !keeps_frames(window, places, edges, first, after) ||
         !can_fill(gaps_in(places, begin, after - edges.trail), elsewhere))) {
      continue;
    }
    best = {id, first, calls, edges.whole + more};
  }
}

std::optional<WindowPlan> WindowPlanner::plan_repair(Unit size, Reach reach,
                                                     std::span<const WindowId> idle,
                                                     std::uint32_t calls_below) const {
  const Bitmap free = home_.pages_within(reach);
  Supply supply;
  supply.pages = free.count();
  for (PageId page = free.find_set(0); page != Bitmap::npos;
       page = free.find_set(frames_.end(page))) {
    ++supply.frames[frames_.order(page)];
  }
  Edges edges;
  edges.whole = static_cast<PageId>(div_up(size, page_units_));
  if (edges.whole > supply.pages) edges = choose_edges(size, reach, true);
  const PageId missing = edges.whole > supply.pages ? edges.whole - supply.pages : 0;
  supply.pages += missing;
  supply.frames[0] += missing;
  Run best{0, 0, calls_below, 0};
  for (const WindowId id : idle) find_run(id, edges, supply, free, best);
  if (best.calls == calls_below) return {};
  if (missing != 0) {
    WindowPlan plan;
    plan.missing = missing;
    plan.calls = best.calls;
    return plan;
  }
  edges.whole = best.whole;
  return plan_run(best, size, edges, reach, free);
}

WindowPlan WindowPlanner::plan_run(const Run& run, Unit size, const Edges& edges, Reach reach,
                                   const Bitmap& free) const {
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
  (void)look_at_places(window, edges, std::max<std::uint32_t>(after, held.size()), free, places);
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

ByOrder<PageId> WindowPlanner::frames_wanted(const std::vector<UnitRange>& gaps) {
  ByOrder<PageId> wanted{};
  for (const UnitRange& gap : gaps) {
    for (FrameOrder order = 0; order < kLargestOrder; ++order)
      wanted[order] += gap.size >> order & 1;
    wanted[kLargestOrder] += gap.size >> kLargestOrder;
  }
  return wanted;
}

ByOrder<std::vector<PageId>> WindowPlanner::choose_frames(const std::vector<UnitRange>& gaps,
                                                          const Window& window, UnitRange between,
                                                          Reach reach) const {
  PageId count = 0;
  for (const UnitRange& gap : gaps) count += gap.size;
  ByOrder<std::vector<PageId>> chosen;
  for (const PageId page : free_frames(count, window.pages, reach)) {
    chosen[frames_.order(page)].push_back(page);
  }
  ByOrder<PageId> wanted = frames_wanted(gaps);
  for (FrameOrder order = kLargestOrder; order > 0; --order) {
    if (chosen[order].size() > wanted[order]) chosen[order].resize(wanted[order]);
    wanted[order - 1] += 2 * (wanted[order] - static_cast<PageId>(chosen[order].size()));
  }
  std::vector<PageId>& singles = chosen[0];
  // The ends are exchanged too: free pages there may be used in between.
  for (std::uint32_t place = 0; place < window.pages.size() && singles.size() < wanted[0];
       ++place) {
    const bool stays = place >= between.begin && place < between.begin + between.size;
    const PageId page = window.pages[place];
    if (!stays && page != kNoPage && home_.is_free(page, reach)) singles.push_back(page);
  }
  singles.resize(wanted[0], kNoPage);
  for (std::vector<PageId>& frames : chosen) std::sort(frames.begin(), frames.end());
  return chosen;
}

void WindowPlanner::fill_gaps(WindowPlan& plan, const Window& window,
                              const std::vector<UnitRange>& gaps, UnitRange between,
                              Reach reach) const {
  const ByOrder<std::vector<PageId>> chosen = choose_frames(gaps, window, between, reach);
  ByOrder<std::size_t> next{};
  for (const UnitRange& gap : gaps) {
    Unit place = gap.begin;
    const Unit end = gap.begin + gap.size;
    for (FrameOrder order = kLargestOrder + 1; order-- > 0;) {
      const PageId pages = PageId{1} << order;
      while (end - place >= pages && next[order] < chosen[order].size()) {
        const PageId first = chosen[order][next[order]++];
        for (PageId i = 0; i < pages; ++i) plan.fills.push_back({place++, first + i});
      }
    }
  }
}

}  // namespace gapless
