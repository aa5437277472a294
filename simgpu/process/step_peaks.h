// Whether the steps of a training differ in the most that they allocate, so that a larger one than
// was seen may come.
//
//   each step's peak    2.0  2.0  2.0 GiB            they are alike
//                       1.0  2.0  1.0  2.0 GiB       they alternate: the most came again
//                       1.1  2.0  1.4  0.9 GiB       they differ: the most came once
//
// The first two are left out: the model and the optimizer's states are made there.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gapless::simgpu {

struct StepPeaks {
  std::uint64_t steps = 0;  // without those that are left out
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;
  std::uint64_t times_most = 0;

  /// So much is allocated now.
  void note(std::uint64_t allocated_bytes) {
    now_bytes = allocated_bytes;
    peak_bytes = std::max(peak_bytes, allocated_bytes);
  }
  /// A step is over.
  void step() {
    constexpr std::uint64_t kLeftOut = 2;
    if (seen >= kLeftOut) count();
    ++seen;
    peak_bytes = now_bytes;
  }
  [[nodiscard]] bool differ() const { return steps >= 3 && times_most == 1; }

  std::uint64_t seen = 0;
  std::uint64_t now_bytes = 0;
  std::uint64_t peak_bytes = 0;  // of this step so far

 private:
  void count() {
    least_bytes = steps == 0 ? peak_bytes : std::min(least_bytes, peak_bytes);
    ++steps;
    if (peak_bytes > most_bytes) times_most = 0;
    if (peak_bytes >= most_bytes) ++times_most;
    most_bytes = std::max(most_bytes, peak_bytes);
  }
};

}  // namespace gapless::simgpu
