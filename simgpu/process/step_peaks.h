// Whether the steps of a training differ in the most that they allocate, so that a larger one than
// was seen may come.
//
//   each step's peak    2.0  2.0  2.0 GiB            they are alike
//                       1.0  2.0  1.0  2.0 GiB       they alternate: the most came again
//                       1.1  2.0  1.4  0.9 GiB       they differ: the most came once
#pragma once

#include <algorithm>
#include <cstdint>

namespace gapless::simgpu {

struct StepPeaks {
  std::uint64_t steps = 0;
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;
  std::uint64_t times_most = 0;

  /// A step, by the most that was allocated in it.
  void note(std::uint64_t peak_bytes) {
    least_bytes = steps == 0 ? peak_bytes : std::min(least_bytes, peak_bytes);
    ++steps;
    if (peak_bytes > most_bytes) times_most = 0;
    if (peak_bytes >= most_bytes) ++times_most;
    most_bytes = std::max(most_bytes, peak_bytes);
  }
  [[nodiscard]] bool differ() const { return steps >= 3 && times_most == 1; }
};

}  // namespace gapless::simgpu
