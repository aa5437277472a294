// Config: what the environment asks of the simulated GPUs.
//
//   SIMGPU_GPUS="A100,16GiB"  which GPUs there are (gpu_profile.h); one A100 where not set
//   SIMGPU_CONTEXT="0"        what a context takes of each, in place of the profile's figure
//   SIMGPU_SHARED=FILE        processes with the same file share the GPUs' memory (shared_usage.h)
//   SIMGPU_UNKNOWN="noise"    what stands in for numbers that nobody knows; "zeros" where not set
//   SIMGPU_SKEW="0.5"         the busiest expert of a router has so much more than the mean
//   SIMGPU_SEED="1"           what random numbers begin with
//   CUDA_VISIBLE_DEVICES="1"  which of them the process sees, renumbered, as the driver takes it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simgpu/process/gpu_profile.h"
#include "simgpu/process/process_record.h"

namespace gapless::simgpu {

struct Config {
  std::vector<GpuProfile> gpus;       // as the process numbers them
  std::vector<GpuProfile> installed;  // all there are
  std::vector<int> installed_index;   // of each of gpus
  std::string shared_file;
  Unknown unknown = Unknown::zeros;
  double skew = 0;
  std::uint64_t seed = 0;
};

/// The numbers that CUDA_VISIBLE_DEVICES names: up to the first that is no GPU here; none at all
/// where one comes twice.
std::vector<int> visible_devices(const std::string& text, int installed);

/// Throws std::invalid_argument, naming the variable, for what it cannot read.
Config config_from_environment();

}  // namespace gapless::simgpu
