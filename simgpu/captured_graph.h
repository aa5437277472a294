// CapturedGraph: what streams were given while they captured, to be run again and again.
//
//   stream 1 (branch 0)   kernel a ----------- kernel c     order: b after a, c after b
//   stream 2 (branch 1)            \- kernel b -/
//
// Addresses are as the program wrote them: a replay touches whatever is there then, and the judge
// sees it.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless::simgpu {

/// One thing a piece of work does to memory.
struct Access {
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;
  bool writes = true;
};

struct CapturedGraph {
  struct Step {
    std::size_t branch = 0;
    std::size_t after = 0;  // another branch: comes after what that was given so far; no work
    std::uint64_t duration_ns = 0;
    std::vector<Access> accesses;
  };
  DeviceIndex device = 0;
  std::uint64_t number = 0;            // of the capture, from 1
  std::vector<StreamHandle> branches;  // the capturing streams, the first one where it began
  std::vector<Step> steps;

  /// The step that the branch's next work would come after; npos: none, it is at the begin.
  static constexpr std::size_t npos = SIZE_MAX;
  [[nodiscard]] std::size_t tail(std::size_t branch, std::size_t before) const {
    for (std::size_t i = before; i-- > 0;) {
      if (steps[i].branch == branch) return i;
    }
    return npos;
  }
};

}  // namespace gapless::simgpu
