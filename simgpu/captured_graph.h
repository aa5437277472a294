// CapturedGraph: what streams were given while they captured, to be run again and again.
//
//   stream 1 (branch 0)   kernel a ----------- kernel c     order: b after a, c after b
//   stream 2 (branch 1)            \- kernel b -/
//
// Addresses are as the program wrote them: a replay touches whatever is there then, and the judge
// sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
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
    std::optional<std::uint32_t> fills_with;  // a memset: every word of what it writes
  };
  DeviceIndex device = 0;
  std::uint64_t number = 0;            // of the capture, from 1
  std::vector<StreamHandle> branches;  // the capturing streams, the first one where it began
  std::vector<Step> steps;
  bool valid = true;  // false: it was asked for what captures do not allow

  /// The pieces of work that the branch's next one would come right after, of the steps before that
  /// one; none: it is at the begin.
  [[nodiscard]] std::vector<std::size_t> ends(std::size_t branch, std::size_t before) const {
    std::vector<std::set<std::size_t>> of(branches.size());
    for (std::size_t i = 0; i < before; ++i) {
      const Step& step = steps[i];
      if (step.after == step.branch) {
        of[step.branch] = {i};
      } else {
        of[step.branch].insert(of[step.after].begin(), of[step.after].end());
      }
    }
    return {of[branch].begin(), of[branch].end()};
  }
};

}  // namespace gapless::simgpu
