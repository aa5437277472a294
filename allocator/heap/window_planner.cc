#include "allocator/heap/window_planner.h"

#include <algorithm>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

// A request for more than this share of all pages is large: it will want long runs again.
constexpr std::uint64_t kLargeShare = 64;

}  // namespace

// Which partly used pages to begin and end with, so that the fewest wholly free pages are needed
// and, of those choices, the least is left over.
WindowPlanner::Edges WindowPlanner::choose_edges(Unit size, Reach reach, bool with_suffix) const {
  struct Edge {
    Unit units = 0;
    PageId page = kNoPage;
    bool operator<(const Edge& other) const {
      return units != other.units ? units < other.units : page < other.page;
    }
  };
  std::vector<Edge> suffixes = {Edge{}};
  std::vector<Edge> prefixes = {Edge{}};
  // A page that several owners' holes make up is whole.
  const auto is_edge = [&](const Block& hole, PageId page) {
    return home_.is_within(hole, page, reach) && !home_.is_free(page, reach);
  };
  if (edge_sharing_) {
    home_.for_each_hole(reach, [&](BlockId id) {
      const Block& hole = blocks_[id];
      const auto above = static_cast<PageId>(div_up(hole.begin, page_units_));
      const Unit boundary = above * page_units_;
      if (with_suffix && hole.begin < boundary && hole.end() >= boundary &&
          is_edge(hole, above - 1)) {
        suffixes.push_back({boundary - hole.begin, above - 1});
      }
      const PageId below = hole.end() / page_units_;
      if (hole.end() > below * page_units_ && hole.begin <= below * page_units_ &&
          is_edge(hole, below)) {
        prefixes.push_back({hole.end() - below * page_units_, below});
      }
    });
    std::sort(suffixes.begin(), suffixes.end());
    std::sort(prefixes.begin(), prefixes.end());
  }
  // The fewest wholly free pages that the two largest edges leave to be found; more where these two
  // are parts of one page.
  const Unit most = suffixes.back().units + prefixes.back().units;
  for (PageId whole = most >= size ? 0 : static_cast<PageId>(div_up(size - most, page_units_));;
       ++whole) {
    const std::uint64_t covered = std::uint64_t{whole} * page_units_;
    const Unit need = covered >= size ? 0 : size - static_cast<Unit>(covered);
    // The pair with the least sum that is enough: suffixes upwards, prefixes downwards.
    const Edge* best_suffix = nullptr;
    const Edge* best_prefix = nullptr;
    std::size_t j = prefixes.size() - 1;
    for (const Edge& suffix : suffixes) {
      while (j > 0 && suffix.units + prefixes[j - 1].units >= need) --j;
      std::size_t k = j;
      if (suffix.page != kNoPage && suffix.page == prefixes[k].page) ++k;  // not one page twice
      if (k == prefixes.size() || suffix.units + prefixes[k].units < need) continue;
      if (best_suffix != nullptr &&
          suffix.units + prefixes[k].units >= best_suffix->units + best_prefix->units) {
        continue;
      }
      best_suffix = &suffix;
      best_prefix = &prefixes[k];
    }
    if (best_suffix == nullptr) continue;
    // What is left over stays free: at the end of the last whole page where the request ends there,
    // else in front of the suffix (or behind the prefix, where that is all there is).
    const Unit left = best_suffix->units + best_prefix->units - need;
    const bool ends_in_whole_page = best_prefix->units == 0 && whole != 0;
    const Unit trimmed = ends_in_whole_page ? 0 : std::min(left, best_suffix->units);
    return {best_suffix->page, best_prefix->page, best_suffix->units - trimmed, best_prefix->units,
            whole};
  }
}

std::vector<PageId> WindowPlanner::choose_pages(PageId count, std::span<const PageId> except,
                                                Reach reach) const {
  std::vector<PageRange> runs = home_.free_runs(reach);
  // From the shortest runs first: the long runs stay whole for others. A large request takes the
  // longest: what was free in one piece is likelier to be free together again.
  const bool large = std::uint64_t{count} * kLargeShare > home_.present_pages();
  std::stable_sort(runs.begin(), runs.end(), [large](const PageRange& a, const PageRange& b) {
    return large ? a.count > b.count : a.count < b.count;
  });
  std::vector<PageId> taken;
  taken.reserve(count);
  std::vector<PageId> excluded(except.begin(), except.end());
  std::sort(excluded.begin(), excluded.end());
  for (const PageRange& run : runs) {
    for (PageId page = run.first; page < run.first + run.count && taken.size() < count; ++page) {
      if (!std::binary_search(excluded.begin(), excluded.end(), page)) taken.push_back(page);
    }
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

WindowPlan WindowPlanner::plan(Unit size, Reach reach) const {
  const PageId free = home_.free_pages(reach);
  if (const Edges edges = choose_edges(size, reach, false); edges.whole <= free) {
    WindowPlan plan = plan_extension(size, edges, reach);
    if (plan.window) return plan;
  }
  const Edges edges = choose_edges(size, reach, true);
  const PageId present = std::min(edges.whole, free);
  WindowPlan plan;
  plan.missing = edges.whole - present;
  std::vector<PageId> pages;
  if (edges.suffix_page != kNoPage) {
    pages.push_back(edges.suffix_page);
    plan.begin = page_units_ - edges.suffix;
  } else if (edges.prefix_page == kNoPage) {
    plan.begin = skipped_begin(size);
  }
  const std::vector<PageId> whole = choose_pages(present, {}, reach);
  pages.insert(pages.end(), whole.begin(), whole.end());
  pages.insert(pages.end(), plan.missing, kNoPage);
  if (edges.prefix_page != kNoPage) pages.push_back(edges.prefix_page);
  fill(plan, 0, pages);
  return plan;
}

void WindowPlanner::fill(WindowPlan& plan, std::uint32_t place, std::span<const PageId> pages) {
  for (const PageId page : pages) plan.fills.push_back({place++, page});
  plan.calls = static_cast<std::uint32_t>(pages.size()) + 1;
}

// How much of the first page to leave free when the last one need not be used to its end.
Unit WindowPlanner::skipped_begin(Unit size) const {
  const Unit partial = size % page_units_;
  const bool skips = edge_sharing_ && partial != 0 && home_.prefers_free_prefix();
  return skips ? page_units_ - partial : 0;
}

// Pages at a window's end that are free already need not be mapped again.
WindowPlan WindowPlanner::plan_extension(Unit size, const Edges& edges, Reach reach) const {
  const Windows::Tail tail = windows_.longest_tail(edges.whole, reach);
  if (tail.pages == 0) return {};
  const Window& window = windows_.at(tail.window);
  const PageId more = edges.whole - tail.pages;
  const bool prefix = edges.prefix_page != kNoPage;
  if (window.pages.size() + more + (prefix ? 1 : 0) > window.room) return {};
  // No page may stand twice in a window, or a run could use it twice.
  const auto held = [&](PageId page) {
    return std::find(window.pages.begin(), window.pages.end(), page) != window.pages.end();
  };
  if (prefix && held(edges.prefix_page)) return {};
  std::vector<PageId> pages = choose_pages(more, window.pages, reach);
  if (pages.size() != more) return {};
  if (prefix) pages.push_back(edges.prefix_page);
  const auto places = static_cast<std::uint32_t>(window.pages.size());
  WindowPlan plan;
  plan.window = tail.window;
  plan.begin = (places - tail.pages) * page_units_ + (prefix ? 0 : skipped_begin(size));
  fill(plan, places, pages);
  return plan;
}

// --- repair --------------------------------------------------------------------------------------

void WindowPlanner::find_run(WindowId id, const Edges& edges, PageId spare, Reach reach,
                             Run& best) const {
  const Window& window = windows_.at(id);
  const auto places = static_cast<std::uint32_t>(window.pages.size());
  const std::uint32_t length = edges.places();
  const std::uint32_t lead = edges.suffix_page != kNoPage ? 1 : 0;
  const std::uint32_t trail = edges.prefix_page != kNoPage ? 1 : 0;
  const std::uint32_t end = std::min(std::max(window.room, places), places + length);
  // Sums over the places before each: those that are not free, those that may not change since a
  // live block of the window lies there, and the begins of runs of used pages.
  std::vector<std::uint32_t> used(end + 1, 0);
  std::vector<std::uint32_t> fixed(end + 1, 0);
  std::vector<std::uint32_t> begins(end + 1, 0);
  std::vector<bool> unmaps(end + 1, false);
  for (const UnitRange& range : window.live) {
    for (Unit at = range.begin / page_units_; at * page_units_ < range.begin + range.size; ++at) {
      // An edge that must stay where it is cannot serve at another place too.
      if (edges.has(window.pages[at])) return;
      fixed[at + 1] = 1;
    }
  }
  std::uint32_t usable = 0;
  for (std::uint32_t place = 0; place < end; ++place) {
    const PageId page = place < places ? window.pages[place] : kNoPage;
    const bool free = page != kNoPage && home_.is_free(page, reach);
    usable += free ? 1 : 0;
    unmaps[place] = page != kNoPage && !free;
    used[place + 1] = used[place] + (free ? 0 : 1);
    fixed[place + 1] += fixed[place];
    begins[place + 1] =
        begins[place] + (unmaps[place] && (place == 0 || !unmaps[place - 1]) ? 1 : 0);
  }
  for (std::uint32_t first = 0; first < places && first + length <= end; ++first) {
    const std::uint32_t after = first + length;
    if (fixed[after] != fixed[first]) continue;
    const bool cuts = first != 0 && unmaps[first] && unmaps[first - 1];
    const std::uint32_t filled = used[after - trail] - used[first + lead];
    // Pages the window has elsewhere must leave there first: none may stand twice in it.
    const std::uint32_t moved = filled + usable > spare ? filled + usable - spare : 0;
    const std::uint32_t unmapped = begins[after] - begins[first] + (cuts ? 1 : 0);
    const std::uint32_t calls = lead + filled + trail + moved + unmapped + 1;
    if (calls < best.calls) best = {id, first, calls};
  }
}

std::optional<WindowPlan> WindowPlanner::plan_repair(Unit size, Reach reach,
                                                     std::span<const WindowId> idle,
                                                     std::uint32_t calls_below,
                                                     PageId comfort) const {
  const PageId free = home_.free_pages(reach);
  Edges edges;
  edges.whole = static_cast<PageId>(div_up(size, page_units_));
  if (edges.whole > free + comfort) edges = choose_edges(size, reach, true);
  const PageId missing = edges.whole > free ? edges.whole - free : 0;
  Run best{0, 0, calls_below};
  for (const WindowId id : idle) find_run(id, edges, free + missing, reach, best);
  if (best.calls == calls_below) return {};
  return plan_run(best, size, edges, missing, reach);
}

WindowPlan WindowPlanner::plan_run(const Run& run, Unit size, const Edges& edges, PageId missing,
                                   Reach reach) const {
  const std::vector<PageId>& held = windows_.at(run.window).pages;
  const std::uint32_t after = run.first + edges.places();
  const auto is_usable = [&](std::uint32_t place) {
    return place < held.size() && held[place] != kNoPage && home_.is_free(held[place], reach);
  };
  WindowPlan plan;
  plan.window = run.window;
  plan.missing = missing;
  plan.calls = run.calls;
  plan.begin = run.first * page_units_;
  std::uint32_t first = run.first;
  std::uint32_t last = after;
  if (edges.suffix_page != kNoPage) {
    plan.begin += page_units_ - edges.suffix;
    plan.fills.push_back({first++, edges.suffix_page});
  } else if (edges.prefix_page == kNoPage) {
    plan.begin += skipped_begin(size);
  }
  if (edges.prefix_page != kNoPage) --last;
  std::vector<std::uint32_t> open;
  for (std::uint32_t place = first; place < last; ++place) {
    if (!is_usable(place)) open.push_back(place);
  }
  // The ends are exchanged too: free pages there may be used in between.
  const auto wanted = static_cast<PageId>(open.size()) - missing;
  std::vector<PageId> pages = choose_pages(wanted, held, reach);
  const auto in_between = [&](std::uint32_t place) { return place >= first && place < last; };
  for (std::uint32_t place = 0; place < held.size() && pages.size() < wanted; ++place) {
    if (in_between(place) || !is_usable(place)) continue;
    pages.push_back(held[place]);
    if (place < run.first || place >= after) plan.drops.push_back(place);
  }
  pages.resize(open.size(), kNoPage);
  for (std::size_t i = 0; i < open.size(); ++i) plan.fills.push_back({open[i], pages[i]});
  if (edges.prefix_page != kNoPage) plan.fills.push_back({last, edges.prefix_page});
  // Nor may an edge stand twice.
  for (std::uint32_t place = 0; place < held.size(); ++place) {
    if (edges.has(held[place]) && (place < run.first || place >= after)) {
      plan.drops.push_back(place);
    }
  }
  return plan;
}

}  // namespace gapless
