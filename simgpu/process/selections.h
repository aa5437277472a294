// Selections: which numbers of a tensor are not zero, as torch.nonzero finds out in four kernels.
//
//   x[mask], torch.where(mask), mask.nonzero()
//
//   count       DeviceReduceSingleTileKernel over NonZeroOp, of a few thousand numbers at most;
//               else DeviceReduceKernel, a sum for each block,
//   add_counts  and DeviceReduceSingleTileKernel over those
//   positions   DeviceSelectSweepKernel: where they are, in the order of memory
//   indices     write_indices: the same by dimension
//
// Not computed, only known to have found nothing: torch.unique and unique_consecutive (the same
// DeviceSelectSweepKernel without NonZeroOp, or one of Thrust's), and torch.repeat_interleave that
// is not told its size (compute_cuda_kernel).
//
// How much memory a program takes hangs on the count. It is right where the numbers are known. What
// is not known is zeros, of which nothing is found: so that is told.
//
// The members' places in arguments are those of CUB in torch 2.11 to 2.15.
#pragma once

#include "simgpu/process/small_kernels.h"

namespace gapless::simgpu {

/// By the demangled name; Shape::none for all others.
[[nodiscard]] SmallKernel recognise_selection(const std::string& name);

/// False where nothing was found among some numbers.
bool run_selection(const SmallKernel& kernel, void** arguments, DeviceMemory& memory);

}  // namespace gapless::simgpu
