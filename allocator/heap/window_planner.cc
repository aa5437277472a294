#include "allocator/heap/window_planner.h"

#include <algorithm>

#include "allocator/base/bytes.h"

namespace gapless {

bool WindowPlanner::is_edge(const Edges& edges, PageId page) const {
  return page != kNoPage && ((edges.lead != 0 && frames_.begin(page) == edges.suffix_page) ||
                             (edges.trail != 0 && frames_.begin(page) == edges.prefix_page));
}

// Which partly used frames to begin and end with, so that the fewest wholly free pages are needed
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
  // A frame that several owners' holes make up is whole.
  const auto is_edge = [&](const Block& hole, PageId page) {
    return home_.is_within(hole, page, reach) && !home_.is_free(page, reach);
  };
  if (edge_sharing_) {
    home_.for_each_hole(reach, [&](BlockId id) {
      const Block& hole = blocks_[id];
      const PageId above = frames_.up(static_cast<PageId>(div_up(hole.begin, page_units_)));
      const Unit boundary = above * page_units_;
      if (with_suffix && hole.begin < boundary && hole.end() >= boundary &&
          is_edge(hole, above - 1)) {
        suffixes.push_back({boundary - hole.begin, frames_.begin(above - 1)});
      }
      const PageId below = frames_.begin(hole.end() / page_units_);
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
    const auto places = [&](const Edge& edge) {
      return edge.page == kNoPage ? 0 : frames_.pages(edge.page);
    };
    return {best_suffix->page,
            best_prefix->page,
            best_suffix->units - trimmed,
            best_prefix->units,
            whole,
            places(*best_suffix),
            places(*best_prefix)};
  }
}

std::vector<PageId> WindowPlanner::free_frames(PageId count, std::span<const PageId> except,
                                               Reach reach) const {
  std::vector<PageRange> runs = home_.free_runs(reach);
  // From the shortest runs first: the long runs stay whole for others. A large request takes the
  // longest: what was free in one piece is likelier to be free together again.
  const bool large = std::uint64_t{count} * kLargeShare > home_.present_pages();
  std::stable_sort(runs.begin(), runs.end(), [large](const PageRange& a, const PageRange& b) {
    return large ? a.count > b.count : a.count < b.count;
  });
  Bitmap excluded(home_.max_pages());
  for (const PageId page : except) {
    if (page != kNoPage) excluded.set(page);
  }
  std::vector<PageId> frames;
  for (const PageRange& run : runs) {
    for (PageId page = run.first; page < run.first + run.count; page = frames_.end(page)) {
      if (!excluded.test(page)) frames.push_back(page);
    }
  }
  return frames;
}

std::vector<PageId> WindowPlanner::choose_pages(PageId count, std::span<const PageId> except,
                                                Reach reach) const {
  std::vector<PageId> frames;
  PageId taken = 0;
  PageId last = kNoPage;  // the smallest frame of more pages than are wanted still
  for (const PageId page : free_frames(count, except, reach)) {
    if (taken >= count) break;
    if (frames_.pages(page) <= count - taken) {
      frames.push_back(page);
      taken += frames_.pages(page);
    } else if (last == kNoPage || frames_.pages(page) < frames_.pages(last)) {
      last = page;
    }
  }
  std::sort(frames.begin(), frames.end());
  if (taken < count && last != kNoPage) {
    // It takes the place of others, too, and is used in part.
    PageId over = taken + frames_.pages(last) - count;
    std::erase_if(frames, [&](PageId page) {
      if (frames_.pages(page) > over) return false;
      over -= frames_.pages(page);
      return true;
    });
    frames.push_back(last);
  }
  std::vector<PageId> pages;
  pages.reserve(count);
  for (const PageId frame : frames) add_frame(pages, frame);
  return pages;
}

void WindowPlanner::add_frame(std::vector<PageId>& pages, PageId page) const {
  for (PageId at = frames_.begin(page); at < frames_.end(page); ++at) pages.push_back(at);
}

WindowPlan WindowPlanner::plan(Unit size, Reach reach) const {
  const PageId free = home_.free_pages(reach);
  if (const Edges edges = choose_edges(size, reach, false); edges.whole <= free) {
    WindowPlan plan = plan_extension(size, edges, reach);
    if (plan.window) return plan;
  }
  return plan_new(size, reach);
}

WindowPlan WindowPlanner::plan_new(Unit size, Reach reach) const {
  const PageId free = home_.free_pages(reach);
  Edges edges = choose_edges(size, reach, true);
  WindowPlan plan;
  if (edges.whole > free) plan.missing = edges.whole - free;
  const std::vector<PageId> whole = choose_pages(std::min(edges.whole, free), {}, reach);
  Unit begin = edges.lead * page_units_ - edges.suffix;
  if (whole.size() > edges.whole) {
    // The last frame has more pages: less is needed of the edges, or nothing.
    const auto inside = static_cast<Unit>(whole.size() * page_units_);
    const Unit rest = size > inside ? size - inside : 0;
    const Unit suffix = rest > edges.prefix ? rest - edges.prefix : 0;
    if (rest == 0) edges.trail = 0;
    if (suffix == 0) edges.lead = 0;
    begin = edges.lead * page_units_ - suffix;
  }
  std::vector<PageId> pages;
  if (edges.lead != 0) add_frame(pages, edges.suffix_page);
  pages.insert(pages.end(), whole.begin(), whole.end());
  if (edges.trail != 0) add_frame(pages, edges.prefix_page);
  plan.begin = edges.lead == 0 && edges.trail == 0 ? skipped_begin(size) : begin;
  fill(plan, 0, pages);
  plan.calls += plan.missing;
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
  // No page may stand twice in a window, or a run could use it twice.
  const auto held = [&](PageId page) {
    return std::find(window.pages.begin(), window.pages.end(), page) != window.pages.end();
  };
  if (edges.trail != 0 && held(edges.prefix_page)) return {};
  std::vector<PageId> pages = choose_pages(more, window.pages, reach);
  if (pages.size() < more) return {};
  const bool prefix = edges.trail != 0 && (tail.pages + pages.size()) * page_units_ < size;
  if (prefix) add_frame(pages, edges.prefix_page);
  if (window.pages.size() + pages.size() > window.room) return {};
  const auto places = static_cast<std::uint32_t>(window.pages.size());
  WindowPlan plan;
  plan.window = tail.window;
  plan.begin = (places - tail.pages) * page_units_ + (prefix ? 0 : skipped_begin(size));
  fill(plan, places, pages);
  return plan;
}

}  // namespace gapless
