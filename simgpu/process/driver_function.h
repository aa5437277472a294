// The driver's functions by name, for cudaGetDriverEntryPoint and cuGetProcAddress.
#pragma once

#include "simgpu/process/api.h"

namespace gapless::simgpu {

/// "cuMemAlloc": its newest version that a CUDA 13 caller knows, of the libcuda.so.1 in front;
/// nullptr where there is none.
SIMGPU_API void* driver_function(const char* name);

}  // namespace gapless::simgpu
