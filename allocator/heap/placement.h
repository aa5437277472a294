// Placement: which hole of the home a request goes to, and where in it.
//
//   copies prevail, one is likely   behind the copy before it, or to the largest hole (sweep.h)
//   copies prevail                  to the begin of the smallest hole
//   else, a small request           beside other small blocks (small_pages.h)
//   else                            where the fewest wholly free pages break (home.h)
//
// It is told of every block that is made or freed, and so notices which of these holds
// (growing_copies.h).
#pragma once

#include <algorithm>

#include "allocator/heap/growing_copies.h"
#include "allocator/heap/home.h"
#include "allocator/heap/small_pages.h"
#include "allocator/heap/sweep.h"

namespace gapless {

class Placement {
 public:
  Placement(const Home& home, const BlockTable& blocks)
      : home_(home), blocks_(blocks), small_pages_(home), sweep_(home, blocks) {}

  /// The hole, in memory that the owner or `anyone` has; hole 0: there is none.
  [[nodiscard]] Fit fit(Unit size, Owner owner, Owner anyone = kAnyone) const {
    if (is_swept(size)) [[unlikely]]
      return sweep_.fit(size, owner, anyone);
    const Fit best = home_.fit(size, owner, anyone, side());
    if (!small_pages_.better_elsewhere(size, best.begin) || best.hole == 0) return best;
    const Fit beside = fit_beside_small(size, owner, anyone, [](const Fit&) { return true; });
    return beside.hole != 0 ? beside : best;
  }
  /// The first place for it that is good(place), of some; hole 0: none of them.
  template <class Good>
  [[nodiscard]] Fit fit_where(Unit size, Owner owner, Good&& good) const {
    if (is_swept(size)) [[unlikely]] {
      const Fit swept = sweep_.fit(size, owner);
      if (swept.hole != 0 && good(swept)) return swept;
    }
    if (small_pages_.is_small(size)) {
      const Fit beside = fit_beside_small(size, owner, kAnyone, good);
      if (beside.hole != 0) return beside;
    }
    return home_.fit_where(size, owner, kAnyone, side(), good);
  }

  /// A block was made, in the home or in a window.
  void note_made(BlockId block) {
    const Unit size = blocks_[block].size;
    if (blocks_[block].state == BlockState::live) small_pages_.note_made(blocks_[block]);
    if (size < GrowingCopies::kSmallest) [[likely]]
      return;
    copies_.note_made(size);
    if (copies_.sweep() && blocks_[block].state == BlockState::live) sweep_.note_made(block);
  }
  /// A block is about to be freed.
  void note_freed(BlockId block) {
    const Unit size = blocks_[block].size;
    if (blocks_[block].state == BlockState::live) small_pages_.note_freed(blocks_[block]);
    if (size < GrowingCopies::kSmallest) [[likely]]
      return;
    sweep_.note_freed(block);
    copies_.note_freed(size);
  }

  /// The live units with what windows for all copies would lose, a part of `most` of them at most:
  /// so much memory is worth having to spare these windows. 0 where copies do not prevail.
  [[nodiscard]] std::uint64_t units_for_copies(std::uint64_t live_units, double most) const {
    if (!copies_.prevail()) return 0;
    const auto live = static_cast<double>(live_units);
    const double lost = kLostByWindow * home_.page_units() / copies_.mean_size();
    return static_cast<std::uint64_t>(live * (1 + std::min(lost, most)));
  }

  /// Throws std::logic_error saying what is wrong, if anything is.
  void validate() const { small_pages_.validate(); }

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  // Of a page, where a block of a few pages lies in a window: it cuts two. Measured,
  // docs/experiments/growing-copies.md.
  static constexpr double kLostByWindow = 1.0 / 12;

  [[nodiscard]] bool is_swept(Unit size) const {
    return size >= GrowingCopies::kSmallest && copies_.sweep();
  }
  template <class Good>
  [[nodiscard, gnu::noinline]] Fit fit_beside_small(Unit size, Owner owner, Owner anyone,
                                                    Good&& good) const {
    return home_.fit_where(size, owner, anyone, side(), [&](const Fit& fit) {
      return small_pages_.has_small(fit.begin) && good(fit);
    });
  }
  [[nodiscard]] Side side() const { return copies_.prevail() ? Side::begin : Side::fewest_pages; }

  const Home& home_;
  const BlockTable& blocks_;
  SmallPages small_pages_;
  GrowingCopies copies_;
  Sweep sweep_;
};

}  // namespace gapless
