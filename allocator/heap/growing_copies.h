// GrowingCopies: notices programs that keep copying blocks into slightly larger ones, as each
// concatenation of a key-value cache with a new token does.
//
//   layer 1   allocate 6.004 MiB, free 6 MiB         the copy does not fit where its original was
//   layer 2   allocate 6.004 MiB, free 6 MiB         but beside it, if that was freed before it:
//   ...
//
//   hole, blocks  [....][6][6][6][6]
//   a step later  [6.004][6.004][6.004][6.004][..]   in the order of addresses
//
// Such copies sweep through the heap. Each at the begin of the smallest hole, they stay in order
// and share their pages with neighbours; a window cuts two pages for each block, and the order is
// gone. So a little growth is worth more there than a window (docs/design.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "allocator/heap/block.h"

namespace gapless {

class GrowingCopies {
 public:
  /// Smaller blocks share their pages in any case.
  static constexpr Unit kSmallest = 2048;

  /// A block of `size` units, at least the smallest, was made.
  void note_made(Unit size) { made_[next_++ % made_.size()] = size; }

  /// One was freed. It was copied if one of the last ones made is a little larger.
  void note_freed(Unit size) {
    const bool copied = std::any_of(made_.begin(), made_.end(), [size](Unit made) {
      return made > size && made - size <= size / kMostGrowth;
    });
    share_ += ((copied ? 1.0 : 0.0) - share_) / kFrees;
    size_ += ((copied ? size : 0.0) - size_) / kFrees;
    prevail_ = share_ > (prevail_ ? kStops : kBegins);
  }

  /// Whether most large blocks that were freed of late were copied.
  [[nodiscard]] bool prevail() const { return prevail_; }
  /// How many units those had on average; only where any were.
  [[nodiscard]] double mean_size() const { return size_ / share_; }

 private:
  static constexpr std::size_t kMade = 8;  // a step may make several before it frees the first
  static constexpr Unit kMostGrowth = 16;  // a 16th: a token more of 16 or more
  static constexpr double kFrees = 256;    // so many are "of late"
  static constexpr double kBegins = 0.5;   // of real programs that do not copy so, none was
  static constexpr double kStops = 0.25;   // above 0.1; of those that do, none below 0.7

  std::array<Unit, kMade> made_{};
  std::size_t next_ = 0;
  double share_ = 0;  // of the blocks freed
  double size_ = 0;   // units copied per block freed
  bool prevail_ = false;
};

}  // namespace gapless
