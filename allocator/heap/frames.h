// Frames: which pages of the home come from the driver in one piece, under one handle.
//
//   page    0   1   2   3   4   5   6   7   8   9  10  11
//   frame  [ ] [ ] [ ] [ ] [ ] [ ] [     ] [             ]      6 to 11 were made for a large
//   request
//
// Mapping takes one driver call for each frame. Small requests want small ones: what is lost at the
// ends of partly used frames is much of a small block. A large request is made of many, and wants
// few. So pages that come for a large request come by two, four, eight or sixteen, the more the
// larger the heap is. A frame begins at a multiple of its pages.
//
// Frames come and go whole, and a window holds them whole; a page is wholly free when its frame is.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "allocator/heap/block.h"

namespace gapless {

/// A request for more than this part of all pages is large: it will want long runs again.
inline constexpr std::uint64_t kLargeShare = 64;

/// A frame of order k has 2^k pages.
using FrameOrder = unsigned;
inline constexpr FrameOrder kLargestOrder = 4;
/// Something for each order.
template <typename T>
using ByOrder = std::array<T, kLargestOrder + 1>;

class Frames {
 public:
  /// Single pages, for now.
  explicit Frames(PageId max_pages) : order_(max_pages + 1) {}

  /// These pages become frames of at most that order, as large as their places allow.
  void join(PageId first, PageId count, FrameOrder most) {
    const PageId end = first + count;
    while (first < end) {
      const auto aligned = first == 0 ? most : static_cast<FrameOrder>(std::countr_zero(first));
      const auto fits = static_cast<FrameOrder>(std::bit_width(end - first) - 1);
      const FrameOrder order = std::min({most, aligned, fits});
      std::fill_n(order_.begin() + first, PageId{1} << order, static_cast<std::uint8_t>(order));
      largest_ = std::max(largest_, order);
      first += PageId{1} << order;
    }
  }
  /// These pages, whole frames, become single ones.
  void separate(PageId first, PageId count) { std::fill_n(order_.begin() + first, count, 0); }

  [[nodiscard]] FrameOrder order(PageId page) const { return order_[page]; }
  /// Pages in a page's frame.
  [[nodiscard]] PageId pages(PageId page) const { return PageId{1} << order(page); }
  /// The first page of a page's frame; for the end of a range: where the last whole frame ends.
  [[nodiscard]] PageId begin(PageId page) const { return page & ~(pages(page) - 1); }
  /// The page after a page's frame.
  [[nodiscard]] PageId end(PageId page) const { return begin(page) + pages(page); }
  /// The first page from that one on with which a frame begins.
  [[nodiscard]] PageId up(PageId page) const {
    const PageId inside = pages(page) - 1;
    return (page + inside) & ~inside;
  }

  /// Pages of the largest frame there has been.
  [[nodiscard]] PageId largest() const { return PageId{1} << largest_; }
  /// Whether there have been frames of several pages.
  [[nodiscard]] bool any_joined() const { return largest_ != 0; }

 private:
  std::vector<std::uint8_t> order_;  // by page
  FrameOrder largest_ = 0;
};

}  // namespace gapless
