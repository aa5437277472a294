// What a training allocates, cut into its steps: of each the least and the most.
//
//   allocated        |\   |\_ |\       noted with every allocation and free
//                  __| \__|  \| \__
//   steps               1     2   3    least -> step_growth.h: does more and more stay?
//                                      most  -> step_peaks.h: do the steps differ?
//
// The first two are left out: the model and the optimizer's states are made there.
#pragma once

#include <algorithm>
#include <cstdint>

#include "simgpu/process/step_growth.h"
#include "simgpu/process/step_peaks.h"

namespace gapless::simgpu {

struct StepMemory {
  StepGrowth growth;
  StepPeaks peaks;

  /// So much is allocated now.
  void note(std::uint64_t allocated_bytes) {
    now_bytes = allocated_bytes;
    least_bytes = std::min(least_bytes, allocated_bytes);
    most_bytes = std::max(most_bytes, allocated_bytes);
  }
  /// A step is over.
  void step() {
    constexpr std::uint64_t kLeftOut = 2;
    if (seen >= kLeftOut) {
      growth.note(before_bytes, least_bytes);
      peaks.note(most_bytes);
    }
    ++seen;
    before_bytes = least_bytes;
    least_bytes = most_bytes = now_bytes;
  }

  std::uint64_t seen = 0;  // steps
  std::uint64_t now_bytes = 0;
  std::uint64_t least_bytes = 0;  // of this step so far
  std::uint64_t most_bytes = 0;
  std::uint64_t before_bytes = 0;  // the least of the step before
};

}  // namespace gapless::simgpu
