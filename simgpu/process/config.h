// Config: what the environment asks of the simulated GPUs.
//
//   SIMGPU_GPUS="A100,16GiB"  which GPUs there are (gpu_profile.h); one A100 where not set
//   SIMGPU_CONTEXT="0"        what a context takes of each, in place of the profile's figure
#pragma once

#include <vector>

#include "simgpu/process/gpu_profile.h"

namespace gapless::simgpu {

struct Config {
  std::vector<GpuProfile> gpus;
};

/// Throws std::invalid_argument, naming the variable, for what it cannot read.
Config config_from_environment();

}  // namespace gapless::simgpu
