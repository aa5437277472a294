// What would have been the most, had some blocks been smaller: an estimate from a run's trace.
//
//   memory   ..AAAALLLL..      activations A 3 GiB, logits L 4 GiB after them: the most is 4 GiB
//   L / 4    ..AAAALL..        the most is 3 GiB: not 4 - 3
//
// So the peak moves to where it is then. What the blocks' sizes do not tell is not in it: that a
// program which computes something again allocates in another order, and what rounding changes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "simgpu/memory_holders.h"

namespace gapless::tools {

/// What of a block would be left: 1 for all of it, 0.5 for half, more than 1 for what would grow.
using Share = std::function<double(const simgpu::HeldBlock&)>;

/// The most that is allocated at once, in bytes, with that of each block. `more` is added all the
/// time.
std::uint64_t peak_if(const std::vector<simgpu::HeldBlock>& blocks, const Share& share,
                      std::uint64_t more = 0);

/// Those that are live at that event of the trace.
std::vector<simgpu::HeldBlock> live_at(const std::vector<simgpu::HeldBlock>& blocks,
                                       std::uint64_t event);

}  // namespace gapless::tools
