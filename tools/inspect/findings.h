// Findings: what is wrong with a program's use of memory, and what to do, in a sentence each.
//
//   1. what       "At the peak 13.62 GiB of 27.31 GiB reserved is allocated: half serves nobody."
//   2. why        "Sizes change from step to step: 61 % of ... were of sizes not seen before."
//   3. what helps "With gapless the same run reserves 13.70 GiB ..."
//
// Causes are told by what lies where (lost_memory.h), what was taken though enough was free
// (growths.h), and what stays in each step (leaks.h); cures are what replays of the recording came
// to (cures.h). What is less than 3 % of the reserved memory is not told.
#pragma once

#include <vector>

#include "tools/inspect/moment_report.h"

namespace gapless::tools {

/// Of a report that is complete but for its findings.
std::vector<Finding> find_causes(const MomentReport& report);

}  // namespace gapless::tools
