// Windows: other orders of the home's pages, kept mapped for use again.
//
//   home     page 0   1   2   3   4   5   6          free: 1, 3, 4, 6
//            live     -  live -   -  live -
//   window   pages 1, 3, 4, 6 side by side at another address: room for four pages in one piece
//
// Pages of one frame (frames.h) stay side by side in it, in their order.
//
// A window has no in-use flag. It is only an order of pages: a request may take any run of pages in
// it that are wholly free in the home now, and several live blocks may share it; the home alone
// says who uses a page. With edge sharing a run may begin in the free end of the page before it and
// stop in the free begin of the page after it: the two aliases of such a page are then used side by
// side, on different 512 B units.
//
// A window may be extended at its end, over more pages: a program whose sizes change a little from
// step to step then pays for the difference only.
//
//   extents   [ 1, 3, 4, 6 ][ 9, 2 ]      made first, made later
//
// It may be repaired: places whose pages are in use elsewhere get other pages (window_planner.h).
//
// Among the extents that have room, the oldest is taken. A repeating program then meets, with every
// repetition, the choices it met before, and makes no new ones.
//
// Nothing here calls a driver; the device layer maps and unmaps.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/heap/home.h"
#include "allocator/heap/page_runs.h"

namespace gapless {

using WindowId = std::uint32_t;

struct Window {
  std::uint64_t address = 0;
  /// How many places its address range has; those after pages.size() are not mapped yet.
  std::uint32_t room = 0;
  std::vector<PageId> pages;
  /// The same as runs, where they are not stale (Windows::runs_of).
  mutable PageRuns runs;
  mutable bool stale_runs = true;
  /// The place at which each of its extents begins.
  std::vector<std::uint32_t> extent_begins;
  /// Where its live blocks lie, in units counted from the window's begin.
  std::vector<UnitRange> live;
  /// When it was last used: a count of uses, for eviction of the least recently used.
  std::uint64_t last_use = 0;
  /// By stream: the epoch in which a block in it was freed last that the stream used (stream/).
  std::vector<Epoch> freed_epoch;
  /// Being unmapped: no longer found.
  bool retired = false;
  /// By how many pools: a graph may write to any place of it.
  std::uint32_t pins = 0;
  /// Places whose frames are unmapped while a pool sleeps, to be mapped there again.
  std::uint32_t asleep = 0;

  /// Whether it may be unmapped or repaired, as far as that goes.
  [[nodiscard]] bool may_change() const { return pins == 0 && asleep == 0; }
};

/// Room for a request in a window: units [begin, begin + size) counted from the window's begin.
struct WindowSpot {
  WindowId window = 0;
  Unit begin = 0;
  Unit size = 0;
};

class Windows {
 public:
  Windows(const Home& home, bool edge_sharing) : home_(home), edge_sharing_(edge_sharing) {}

  /// The first run of `size` units that are free and within reach, in the oldest extent that has
  /// one.
  [[nodiscard]] std::optional<WindowSpot> find(Unit size, Reach reach) const;

  /// Calls f(spot) for the first such run in each extent that has one.
  template <class F>
  void for_each_spot(Unit size, Reach reach, F&& f) const {
    const FreePages free(home_, reach);
    for (const Extent& extent : extents_) {
      if (!may_have(extent, size, free) || windows_[extent.window].retired) continue;
      if (const auto spot = find_in(extent, size, free)) f(*spot);
    }
  }

  /// Whether that spot, of a window that is there, is free and within reach.
  [[nodiscard]] bool is_free(const WindowSpot& spot, Reach reach) const;

  /// Adds a window over those pages, mapped at `address`, with `room` places of address range.
  WindowId add(std::uint64_t address, std::uint32_t room, std::vector<PageId> pages);
  /// Adds pages, mapped behind the window's last one.
  void extend(WindowId window, const std::vector<PageId>& pages);
  /// Forgets a window without live blocks.
  void remove(WindowId window);
  /// That place of the window no longer holds its page.
  void drop_page(WindowId window, std::uint32_t place);
  /// That place, which holds none, holds a page again.
  void set_page(WindowId window, std::uint32_t place, PageId page);

  [[nodiscard]] bool has(WindowId window) const { return window < windows_.size(); }
  [[nodiscard]] Window& at(WindowId window) { return windows_[window]; }
  [[nodiscard]] const Window& at(WindowId window) const { return windows_[window]; }
  /// A window's pages as runs.
  [[nodiscard]] const PageRuns& runs_of(const Window& window) const {
    if (std::exchange(window.stale_runs, false)) window.runs = PageRuns(window.pages);
    return window.runs;
  }
  void touch(WindowId window) { windows_[window].last_use = ++uses_; }

  /// The home's units behind a spot, neighbours joined, in the window's order.
  [[nodiscard]] std::vector<UnitRange> home_ranges(const WindowSpot& spot) const;
  /// The same were a window made of those pages.
  [[nodiscard]] std::vector<UnitRange> home_ranges(const std::vector<PageId>& pages, Unit begin,
                                                   Unit size) const;

  /// A run of wholly free pages at a window's end.
  struct Tail {
    WindowId window = 0;
    std::uint32_t pages = 0;  // 0: no window has one
  };
  /// The longest tail of at most `most` pages in a window with room for the rest of `most`; the
  /// oldest of equals.
  [[nodiscard]] Tail longest_tail(std::uint32_t most, Reach reach) const;

  /// The window without live blocks that was used longest ago.
  [[nodiscard]] std::optional<WindowId> least_recently_used() const;

  /// Calls f(id, window) for every window, the oldest first.
  template <class F>
  void for_each(F&& f) const {
    for (const Extent& extent : extents_) {
      if (extent.begin == 0) f(extent.window, windows_[extent.window]);
    }
  }

  [[nodiscard]] std::uint32_t count() const {
    return static_cast<std::uint32_t>(windows_.size() - free_ids_.size());
  }
  /// Places of all windows that hold a page: mappings beside the home's.
  [[nodiscard]] std::uint64_t mapped_pages() const { return mapped_pages_; }

  /// Throws std::logic_error saying what is wrong, if anything is.
  void validate() const;

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  [[nodiscard]] static bool is_free(PageId page, const FreePages& free) {
    return page != kNoPage && free(page);
  }
  // The places [begin, end) of a window, made at one time.
  struct Extent {
    WindowId window = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    PageId probe = kNoPage;  // the page at probe_place()

    // Long runs that touch the extent lie over this place: the middle of the window's first extent,
    // or the place before a later one.
    [[nodiscard]] std::uint32_t probe_place() const { return begin == 0 ? end / 2 : begin - 1; }
    // Whether runs of so many pages do.
    [[nodiscard]] bool is_probed_by(std::uint32_t pages) const {
      return pages > (begin == 0 ? end / 2 : end - begin);
    }
  };

  /// So many pages are asked one by one before a window's runs are looked at.
  static constexpr std::uint32_t kFewPages = 8;

  /// What two edges can give, in units; more needs wholly free pages in between.
  [[nodiscard]] Unit most_in_edges() const {
    return edge_sharing_ ? 2 * (home_.frames().largest() * home_.page_units() - 1) : 0;
  }
  /// Wholly free pages a run of `size` units needs at least.
  [[nodiscard]] std::uint32_t least_whole(Unit size) const {
    const Unit edges = most_in_edges();
    return size > edges ? static_cast<std::uint32_t>(div_up(size - edges, home_.page_units())) : 1;
  }
  /// Whether the extent could have a spot, by what is quickly known. So thousands of windows are
  /// passed by without a look at their places.
  [[nodiscard]] bool may_have(const Extent& extent, Unit size, const FreePages& free) const {
    if (size <= most_in_edges()) return true;
    const std::uint32_t least = least_whole(size);
    return least <= extent.end && (!extent.is_probed_by(least) || is_free(extent.probe, free));
  }
  void add_extent(WindowId window, std::uint32_t begin);
  /// Where the run of free pages begins that ends before place `end`; `floor` at least.
  [[nodiscard]] std::uint32_t free_before(const Window& window, std::uint32_t end,
                                          std::uint32_t floor, const FreePages& free) const;
  /// Where the run of free pages ends that begins with place `begin`; `ceiling` at most.
  [[nodiscard]] std::uint32_t free_from(const Window& window, std::uint32_t begin,
                                        std::uint32_t ceiling, const FreePages& free) const;
  /// That place has another page.
  void note_page(WindowId window, std::uint32_t place);

  /// A spot that touches the extent and lies before its end.
  [[nodiscard]] std::optional<WindowSpot> find_in(const Extent& extent, Unit size,
                                                  const FreePages& free) const;

  /// One without a wholly free page: the end of one and the begin of the next are enough.
  [[nodiscard]] std::optional<WindowSpot> find_between(const Extent& extent, Unit size,
                                                       const FreePages& free) const;

  const Home& home_;
  bool edge_sharing_;
  std::vector<Window> windows_;  // by id; ids of removed windows are used again
  std::vector<Extent> extents_;  // of the live ones, oldest first
  std::vector<WindowId> free_ids_;
  std::uint64_t mapped_pages_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace gapless
