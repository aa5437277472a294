// WindowPlanner: which pages to put side by side for a request that no hole and no window can
// serve.
//
//   pages     0     1     2     3     4     5            free: 1, 4; half of 2 and half of 3
//             used  free  used| |used  free  used
//
//   a request of 2.9 pages:   [ end of 2 | 1 | 4 | begin of 3 ]
//                               suffix    whole     prefix
//
// Either a window is extended at its end, where pages are free already, or a new one is planned.
// Beside whole pages a plan may use the free end of a partly used page as its first, and the free
// begin of another as its last: the pair with which the fewest whole pages are needed and the least
// is left over.
//
// A repair exchanges pages in a window that is there, where that takes fewer driver calls:
//
//   window    [ 3 | 7 | 8 | 12 | 13 ]     a request of four pages; 7 and 8 are in use elsewhere
//   repaired  [ 3 | 4 | 5 | 12 | 13 ]     unmap, map, map, set access; new, it would be six calls
//
// Where frames have several pages (frames.h), a plan has whole ones, and an edge may be longer than
// a page. The repairs are in window_repair.cc.
//
// Nothing here changes anything; the device layer carries a plan out.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "allocator/heap/windows.h"

namespace gapless {

/// Which page is to be mapped at which place of a window.
struct WindowPlan {
  struct Fill {
    std::uint32_t place = 0;
    PageId page = kNoPage;
  };
  PageId missing = 0;  // pages to be created before there can be a plan; then no more is known
  std::optional<WindowId> window;    // none: a new one
  std::vector<Fill> fills;           // by place; a page that is there now leaves it
  std::vector<std::uint32_t> drops;  // other places of the window that lose their pages, by place
  Unit begin = 0;                    // where the request begins, in units of the window
  std::uint32_t calls = 0;           // driver calls this takes, were all frames single pages
};

class WindowPlanner {
 public:
  WindowPlanner(const Home& home, const Windows& windows, const BlockTable& blocks,
                bool edge_sharing)
      : home_(home),
        windows_(windows),
        blocks_(blocks),
        frames_(home.frames()),
        page_units_(home.page_units()),
        edge_sharing_(edge_sharing) {}

  /// An extension or a new window. Always possible, given that the missing pages can be had.
  [[nodiscard]] WindowPlan plan(Unit size, Reach reach) const;
  /// A new window: of all plans it needs the fewest wholly free pages.
  [[nodiscard]] WindowPlan plan_new(Unit size, Reach reach) const;
  /// The repair with the fewest calls among windows whose freed places no work uses any more; only
  /// with fewer than `calls_below`. It needs no more memory than plan().
  [[nodiscard]] std::optional<WindowPlan> plan_repair(Unit size, Reach reach,
                                                      std::span<const WindowId> idle,
                                                      std::uint32_t calls_below) const;

 private:
  // The free ends and begins of partly used frames that a plan uses, and what it then needs.
  struct Edges {
    PageId suffix_page = kNoPage;  // the frame's first
    PageId prefix_page = kNoPage;
    Unit suffix = 0;  // units used of them
    Unit prefix = 0;
    PageId whole = 0;         // wholly free pages in between
    std::uint32_t lead = 0;   // places of the suffix's frame
    std::uint32_t trail = 0;  // and of the prefix's

    [[nodiscard]] std::uint32_t places() const { return lead + whole + trail; }
  };

  [[nodiscard]] Edges choose_edges(Unit size, Reach reach, bool with_suffix) const;
  /// Whether the page belongs to one of the edges' frames.
  [[nodiscard]] bool is_edge(const Edges& edges, PageId page) const;
  /// The first pages of wholly free frames, but none of `except`, those first that a request for
  /// `count` pages should take.
  [[nodiscard]] std::vector<PageId> free_frames(PageId count, std::span<const PageId> except,
                                                Reach reach) const;
  /// `count` wholly free pages, but none of `except`, and the rest of the last frame; fewer where
  /// there are not that many.
  [[nodiscard]] std::vector<PageId> choose_pages(PageId count, std::span<const PageId> except,
                                                 Reach reach) const;
  /// All of a frame's pages.
  void add_frame(std::vector<PageId>& pages, PageId page) const;
  /// Puts pages side by side from a place on.
  static void fill(WindowPlan& plan, std::uint32_t place, std::span<const PageId> pages);
  // A run of places in a window and what it takes to put the edges and wholly free pages there.
  struct Run {
    WindowId window = 0;
    std::uint32_t first = 0;
    std::uint32_t calls = 0;
    PageId whole = 0;
  };
  // Wholly free pages there are, and the frames they are.
  struct Supply {
    PageId pages = 0;
    ByOrder<PageId> frames{};
  };
  struct Places;
  /// The window's places, up to `end`. False where it can have no run with those edges.
  /// `free`: the wholly free pages within reach.
  bool look_at_places(const Window& window, const Edges& edges, std::uint32_t end,
                      const Bitmap& free, Places& places) const;
  /// Places from that one on to the next with which a frame begins: 0 where it does.
  [[nodiscard]] std::uint32_t places_to_frame(const Window& window, std::uint32_t place) const;
  /// Whether the run of places [first, after) exchanges whole frames only.
  [[nodiscard]] bool keeps_frames(const Window& window, const Places& places, const Edges& edges,
                                  std::uint32_t first, std::uint32_t after) const;
  /// The runs of places in [begin, end) that are not free.
  [[nodiscard]] static std::vector<UnitRange> gaps_in(const Places& places, std::uint32_t begin,
                                                      std::uint32_t end);
  /// Frames that fill the gaps, the largest there may be: what is left at the ends by order.
  [[nodiscard]] static ByOrder<PageId> frames_wanted(const std::vector<UnitRange>& gaps);
  /// Whether those frames can fill the gaps.
  [[nodiscard]] static bool can_fill(const std::vector<UnitRange>& gaps,
                                     const ByOrder<PageId>& supply);
  /// The run of that window with the fewest calls, if fewer than best.calls, becomes `best`.
  void find_run(WindowId window, const Edges& edges, const Supply& supply, const Bitmap& free,
                Run& best) const;
  [[nodiscard]] WindowPlan plan_run(const Run& run, Unit size, const Edges& edges, Reach reach,
                                    const Bitmap& free) const;
  /// Wholly free frames for the gaps, whose places lie `between`, by order.
  [[nodiscard]] ByOrder<std::vector<PageId>> choose_frames(const std::vector<UnitRange>& gaps,
                                                           const Window& window, UnitRange between,
                                                           Reach reach) const;
  /// Puts wholly free frames into the gaps.
  void fill_gaps(WindowPlan& plan, const Window& window, const std::vector<UnitRange>& gaps,
                 UnitRange between, Reach reach) const;
  /// Without a window where none can be extended.
  [[nodiscard]] WindowPlan plan_extension(Unit size, const Edges& edges, Reach reach) const;
  [[nodiscard]] Unit skipped_begin(Unit size) const;

  const Home& home_;
  const Windows& windows_;
  const BlockTable& blocks_;
  const Frames& frames_;
  Unit page_units_;
  bool edge_sharing_;
};

}  // namespace gapless
