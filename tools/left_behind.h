// Whether a run went on from what an earlier run of the same command left: a checkpoint. Such a run
// takes little, and that is no answer for one that begins from the start.
//
//   fits, with gapless    5 steps, 11.47 GiB   out/last.pt is written
//         with native     0 steps,  2.38 GiB   it was found, nothing was left to do: not known
//
//   search, batch 8       5 steps,  4.10 GiB   yes
//           batch 4096    0 steps,  2.38 GiB   the same, or no batch was full: not known
//
// One that has steps left to make takes as much as it would from the start.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "tools/fits_report.h"

namespace gapless::tools {

class StepsBefore {
 public:
  /// Judges the rows that fit, of a run in which no process took a step of an optimizer: nobody
  /// knows, where an earlier one did. Each run of a command, in turn.
  void judge(FitsRun& run);

 private:
  std::uint64_t most_ = 0;  // in one process
};

/// Whether a process took no step where the same one of another run took some.
bool took_no_step_beside(const nlohmann::json& other, const nlohmann::json& row);

/// Whether a run that is to take more than `first`, or as much, takes less.
bool takes_less_than(const FitsRun& first, const FitsRun& again);

}  // namespace gapless::tools
