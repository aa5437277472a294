// Frames: which pages of the home come from the driver in one piece, under one handle.
//
//   page    0   1   2   3   4   5   6   7
//   frame  [ ] [ ] [ ] [ ] [     ] [     ]       4 to 7 were made for a large request
//
// Mapping takes one driver call for each frame. Small requests want small ones: what is lost at the
// ends of partly used frames is much of a small block. A large request is made of many, and wants
// few. So pages that come for a large request come in pairs, as far as an even page is the first.
//
// Frames come and go whole, and a window holds them whole; a page is wholly free when its frame is.
#pragma once

#include "allocator/base/bitmap.h"
#include "allocator/heap/block.h"

namespace gapless {

/// A request for more than this part of all pages is large: it will want long runs again.
inline constexpr std::uint64_t kLargeShare = 64;

class Frames {
 public:
  /// Single pages, for now.
  explicit Frames(PageId max_pages) : pairs_(max_pages / 2 + 1) {}

  /// These pages become pairs, but an odd one at the begin and an even one at the end.
  void pair(PageId first, PageId count) {
    if (count >= 2) pairs_.set_range((first + 1) / 2, (first + count) / 2);
  }
  /// These pages, whole frames, become single ones.
  void separate(PageId first, PageId count) {
    if (any_pairs()) pairs_.clear_range(first / 2, (first + count + 1) / 2);
  }

  /// The first page of a page's frame; for the end of a range: where the last whole frame ends.
  [[nodiscard]] PageId begin(PageId page) const { return page - (is_second(page) ? 1 : 0); }
  /// The page after a page's frame.
  [[nodiscard]] PageId end(PageId page) const { return begin(page) + pages(page); }
  /// The first page from that one on with which a frame begins.
  [[nodiscard]] PageId up(PageId page) const { return page + (is_second(page) ? 1 : 0); }
  /// Pages in a page's frame.
  [[nodiscard]] PageId pages(PageId page) const { return pairs_.test(page / 2) ? 2 : 1; }
  [[nodiscard]] bool any_pairs() const { return pairs_.count() != 0; }

 private:
  [[nodiscard]] bool is_second(PageId page) const { return page % 2 != 0 && pairs_.test(page / 2); }

  Bitmap pairs_;  // by half of the even page's number
};

}  // namespace gapless
