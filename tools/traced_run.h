// A program run on simulated GPUs with one allocator, its memory traced, and judged: what `fits`
// does for each allocator, and `advise` for each remedy.
//
//   command, GPUs, allocator -> simulated_run.h, watched_program.h -> fits_report.h
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/fits_report.h"
#include "tools/launch.h"
#include "tools/simulated_run.h"

namespace gapless::tools {

struct TracedRun {
  std::string name;  // before its progress, on a terminal
  std::vector<std::string> command;
  SimulatedGpus gpus;
  std::string allocator;
  bool blocks = false;       // each block is wanted
  double limit_seconds = 0;  // 0: none
  bool show_output = false;
  Variables variables;  // beside those that simulate
};

/// Throws InputError where the program cannot be started.
FitsRun run_traced(const TracedRun& run);

}  // namespace gapless::tools
