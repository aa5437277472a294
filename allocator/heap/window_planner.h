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
// is left over. Nothing here changes anything; the device layer carries a plan out.
#pragma once

#include <span>
#include <vector>

#include "allocator/heap/windows.h"

namespace gapless {

/// A new window, or more pages at the end of one.
struct WindowPlan {
  Windows::Tail tail;         // what is extended; tail.pages == 0: a new window
  std::vector<PageId> pages;  // to be mapped, in order; kNoPage: to be created first
  PageId missing = 0;         // how many are to be created
  Unit begin = 0;             // where the request begins, in the first page of tail or pages
};

class WindowPlanner {
 public:
  WindowPlanner(const Home& home, const Windows& windows, const BlockTable& blocks,
                bool edge_sharing)
      : home_(home),
        windows_(windows),
        blocks_(blocks),
        page_units_(home.page_units()),
        edge_sharing_(edge_sharing) {}

  /// Always possible, given that the missing pages can be had.
  [[nodiscard]] WindowPlan plan(Unit size, Owner owner) const;

 private:
  // The free ends and begins of partly used pages that a plan uses, and what it then needs.
  struct Edges {
    PageId suffix_page = kNoPage;
    PageId prefix_page = kNoPage;
    Unit suffix = 0;  // units used of them
    Unit prefix = 0;
    PageId whole = 0;  // wholly free pages in between
  };

  [[nodiscard]] Edges choose_edges(Unit size, Owner owner, bool with_suffix) const;
  /// `count` wholly free pages, but none of `except`; fewer where there are not that many.
  [[nodiscard]] std::vector<PageId> choose_pages(PageId count, std::span<const PageId> except,
                                                 Owner owner) const;
  /// With tail.pages == 0 where no window can be extended.
  [[nodiscard]] WindowPlan plan_extension(Unit size, const Edges& edges, Owner owner) const;
  [[nodiscard]] Unit skipped_begin(Unit size) const;

  const Home& home_;
  const Windows& windows_;
  const BlockTable& blocks_;
  Unit page_units_;
  bool edge_sharing_;
};

}  // namespace gapless
