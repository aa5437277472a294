// The library that computes what PyTorch's operators compute, where the numbers are known
// (simgpu/torch): libsimgpu_torch-VERSION.so, in the folder "torch" beside this library.
//
//   torch asks how many GPUs there are -> cudaGetDeviceCount -> load_values()
//
// By then torch has its operators, and none has run on a GPU yet.
#pragma once

#include "simgpu/process/api.h"

namespace gapless::simgpu {

/// To be called without the lock. Does nothing where no torch is loaded; operators that have come
/// since the last call are taken up as well.
SIMGPU_API void load_values();

}  // namespace gapless::simgpu
