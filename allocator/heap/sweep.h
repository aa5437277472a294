// Sweep: where copies go while a program keeps copying its blocks (growing_copies.h), each right
// behind the one before it.
//
//   home    [1c][.......][2a][2b][1a][1b]      the last copy was 1c
//   fit     [1c]^ there, where it fits; else at the begin of the largest hole
#pragma once

#include <utility>

#include "allocator/heap/home.h"

namespace gapless {

class Sweep {
 public:
  Sweep(const Home& home, const BlockTable& blocks) : home_(home), blocks_(blocks) {}

  /// Where the next copy goes, in memory that the owner or `anyone` has; hole 0: it fits nowhere.
  [[nodiscard]] Fit fit(Unit size, Owner owner, Owner anyone = kAnyone) const {
    const BlockId largest = home_.largest_hole(owner, anyone);
    if (blocks_[largest].size < size) return {};  // record 0 has no size
    const Block& last = blocks_[last_.block];
    if (last.state == BlockState::live && last.begin == last_.begin) {
      const Block& next = blocks_[last.next];
      const bool usable = next.owner == owner || next.owner == anyone;
      if (next.state == BlockState::hole && usable && next.size >= size) {
        return {last.next, next.begin};
      }
    }
    return {largest, blocks_[largest].begin};  // where it goes on for longest
  }
  /// That block was placed there just now: what comes next goes behind it.
  void note_made(BlockId block) {
    before_ = last_;
    last_ = {block, blocks_[block].begin};
  }
  /// That block is about to be freed: if the sweep had come there last, it was for a temporary.
  void note_freed(BlockId block) {
    if (block == last_.block) last_ = std::exchange(before_, {});
  }

 private:
  struct Placed {
    BlockId block = 0;
    Unit begin = 0;
  };

  const Home& home_;
  const BlockTable& blocks_;
  // Its last blocks, if they are still live and there.
  Placed last_;
  Placed before_;
};

}  // namespace gapless
