#include "allocator/heap/window_planner.h"

#include <algorithm>

#include "allocator/base/bytes.h"

namespace gapless {

// Which partly used pages to begin and end with, so that the fewest wholly free pages are needed
// and, of those choices, the least is left over.
WindowPlanner::Edges WindowPlanner::choose_edges(Unit size, Owner owner, bool with_suffix) const {
  struct Edge {
    Unit units = 0;
    PageId page = kNoPage;
    bool operator<(const Edge& other) const {
      return units != other.units ? units < other.units : page < other.page;
    }
  };
  std::vector<Edge> suffixes = {Edge{}};
  std::vector<Edge> prefixes = {Edge{}};
  if (edge_sharing_) {
    home_.for_each_hole(owner, [&](BlockId id) {
      const Block& hole = blocks_[id];
      const auto above = static_cast<PageId>(div_up(hole.begin, page_units_));
      const Unit boundary = above * page_units_;
      if (with_suffix && hole.begin < boundary && hole.end() >= boundary) {
        suffixes.push_back({boundary - hole.begin, above - 1});
      }
      const PageId below = hole.end() / page_units_;
      if (hole.end() > below * page_units_ && hole.begin <= below * page_units_) {
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
                                                Owner owner) const {
  std::vector<PageRange> runs = home_.free_runs(owner);
  // From the shortest runs first: the long runs stay whole for others.
  std::stable_sort(runs.begin(), runs.end(),
                   [](const PageRange& a, const PageRange& b) { return a.count < b.count; });
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

WindowPlan WindowPlanner::plan(Unit size, Owner owner) const {
  const PageId free = home_.free_pages(owner);
  if (const Edges edges = choose_edges(size, owner, false); edges.whole <= free) {
    WindowPlan plan = plan_extension(size, edges, owner);
    if (plan.tail.pages != 0) return plan;
  }
  WindowPlan plan;
  const Edges edges = choose_edges(size, owner, true);
  const PageId present = std::min(edges.whole, free);
  plan.missing = edges.whole - present;
  if (edges.suffix_page != kNoPage) {
    plan.pages.push_back(edges.suffix_page);
    plan.begin = page_units_ - edges.suffix;
  } else if (edges.prefix_page == kNoPage) {
    plan.begin = skipped_begin(size);
  }
  const std::vector<PageId> whole = choose_pages(present, {}, owner);
  plan.pages.insert(plan.pages.end(), whole.begin(), whole.end());
  plan.pages.insert(plan.pages.end(), plan.missing, kNoPage);
  if (edges.prefix_page != kNoPage) plan.pages.push_back(edges.prefix_page);
  return plan;
}

// How much of the first page to leave free when the last one need not be used to its end.
Unit WindowPlanner::skipped_begin(Unit size) const {
  const Unit partial = size % page_units_;
  const bool skips = edge_sharing_ && partial != 0 && home_.prefers_free_prefix();
  return skips ? page_units_ - partial : 0;
}

// Pages at a window's end that are free already need not be mapped again.
WindowPlan WindowPlanner::plan_extension(Unit size, const Edges& edges, Owner owner) const {
  const Windows::Tail tail = windows_.longest_tail(edges.whole, owner);
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
  WindowPlan plan;
  plan.pages = choose_pages(more, window.pages, owner);
  if (plan.pages.size() != more) return {};
  if (prefix) plan.pages.push_back(edges.prefix_page);
  plan.begin = prefix ? 0 : skipped_begin(size);
  plan.tail = tail;
  return plan;
}

}  // namespace gapless
