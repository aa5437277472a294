// KernelShape: how many threads a kernel is launched with, and with how much shared memory. No GPU
// takes more than these, and what asks for more ends with an error whatever memory there is:
//
//   scaled_dot_product_attention, batch 70,000     blocks 1 x 2 x 70,000: invalid configuration
//   tiles of 128 x 128, five at a time             128 KiB a block; an RTX 3090 has 99: invalid
//   value
#pragma once

#include <cstdint>

#include "simgpu/ptx/launch.h"

namespace gapless::simgpu {

struct KernelShape {
  ptx::Dim3 grid{1, 1, 1};
  ptx::Dim3 block{1, 1, 1};
  unsigned dynamic_shared_bytes = 0;
};

/// Whether a GPU takes a grid and blocks that large (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability", the same for all). That there are none is let pass: how
/// many there are may follow from what nobody knows.
constexpr bool is_launchable(const KernelShape& shape) {
  constexpr unsigned kMostBlocksAlongYAndZ = 65535;
  constexpr unsigned kMostThreads = 1024;  // of a block, and along its x and y
  constexpr unsigned kMostThreadsAlongZ = 64;
  const auto [blocks_x, blocks_y, blocks_z] = shape.grid;
  const auto [x, y, z] = shape.block;
  return blocks_x <= INT32_MAX && blocks_y <= kMostBlocksAlongYAndZ &&
         blocks_z <= kMostBlocksAlongYAndZ && x <= kMostThreads && y <= kMostThreads &&
         z <= kMostThreadsAlongZ && std::uint64_t{x} * y * z <= kMostThreads;
}

}  // namespace gapless::simgpu
