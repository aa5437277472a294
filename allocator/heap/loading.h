// Loading: whether a program allocates and hardly frees, as while weights are loaded or an
// optimiser makes its states.
//
//   allocated  0      1 GiB     2 GiB     3 GiB     4 GiB
//   live       |--------|---------|---------|----     |
//   loading        yes       yes       yes       no          a 32nd of it was freed
//
// What comes in such a time stays, side by side: it can lie in large pieces (frames.h), which take
// few driver calls, and nothing will have to be joined from parts of them.
#pragma once

#include <cstdint>

namespace gapless {

class Loading {
 public:
  /// Units that were ever allocated, that are live, and that are there in all, now and then.
  void note(std::uint64_t allocated, std::uint64_t live, std::uint64_t present) {
    const Mark now{allocated, live};
    const std::uint64_t more = now.allocated - before_.allocated;
    const std::uint64_t kept = now.live > before_.live ? now.live - before_.live : 0;
    holds_ = kept >= more - more / kPart;
    if (now.allocated - last_.allocated > present / kPart) {
      before_ = last_;
      last_ = now;
    }
  }
  [[nodiscard]] bool holds() const { return holds_; }

 private:
  // One of so many parts of what is there is what a program is judged by, and one of so many of
  // that may have been freed. Anything from 8 to 1000 does much the same
  // (docs/experiments/handle-sizes.md).
  static constexpr std::uint64_t kPart = 32;
  struct Mark {
    std::uint64_t allocated = 0;
    std::uint64_t live = 0;
  };
  Mark before_;  // when one to two such parts fewer had been allocated
  Mark last_;
  bool holds_ = true;
};

}  // namespace gapless
