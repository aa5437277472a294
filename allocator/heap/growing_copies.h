// GrowingCopies: notices programs that keep copying blocks into slightly larger ones, as each
// concatenation of a key-value cache with a new token does.
//
//   request 1, layer 1   allocate 6.004 MiB, free 6 MiB     a copy does not fit where its original
//              layer 2   allocate 6.004 MiB, free 6 MiB     was, but where two of them were
//   ...
//   request 2, layer 1   allocate 3.004 MiB, free 3 MiB
//
// Such a program copies all its caches in every step, always in the same order. So each copy goes
// right behind the one before it (a sweep), and memory is in that order too: then the next original
// to be freed is the one behind the gap, and one gap serves all requests, of whatever sizes.
//
//   a step begins   [1a][1b][1c][2a][2b][.......]       the gap is larger than two blocks
//                   [.......][1c][2a][2b][1a][1b]       the end is full: to the largest hole
//   it goes on      [1c][.......][2a][2b][1a][1b]
//   the next one    [1c][2a][2b][.......][1a][1b]       the same, elsewhere
//
// What finished requests leave is joined with the gap when the sweep comes there. A window would
// cut two pages for each block, and stand in the way (docs/placement.md).
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

  /// One was freed. It was copied if one of the last ones made is a little larger. The very last
  /// one made was a temporary, such as a library's workspace: as if it had never been.
  void note_freed(Unit size) {
    Unit& last = made_[(next_ + made_.size() - 1) % made_.size()];
    if (size == last) {
      last = 0;
      --next_;
      return;
    }
    const bool copied = std::any_of(made_.begin(), made_.end(), [size](Unit made) {
      return made > size && made - size <= size / kMostGrowth;
    });
    sweeps_ = copied;
    size_ += ((copied ? size : 0.0) - size_) / kFrees;
    share_ += ((copied ? 1.0 : 0.0) - share_) / kFrees;
    prevail_ = share_ > (prevail_ ? kStops : kBegins);
  }

  /// Whether most large blocks that were freed of late were copied.
  [[nodiscard]] bool prevail() const { return prevail_; }
  /// How many units those had on average; only where any were.
  [[nodiscard]] double mean_size() const { return size_ / share_; }
  /// Whether the last one freed was, so that the next one made is likely to be a copy.
  [[nodiscard]] bool sweep() const { return prevail_ && sweeps_; }

 private:
  static constexpr std::size_t kMade = 4;  // a step may make some before it frees the first
  static constexpr Unit kMostGrowth = 16;  // a 16th: a token more of 16 or more
  static constexpr double kFrees = 256;    // so many are "of late"
  // Of real programs that copy so, the share comes to 0.97 and more; of others, to 0.28 at most.
  static constexpr double kBegins = 0.5;
  static constexpr double kStops = 0.25;

  std::array<Unit, kMade> made_{};
  std::size_t next_ = 0;
  double share_ = 0;  // of the blocks freed
  double size_ = 0;   // units copied per block freed
  bool prevail_ = false;
  bool sweeps_ = false;
};

}  // namespace gapless
