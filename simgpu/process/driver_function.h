// The driver's functions by name, for cudaGetDriverEntryPoint and cuGetProcAddress.
#pragma once

#include "simgpu/process/api.h"

namespace gapless::simgpu {

/// "cuMemAlloc": the function as it is in CUDA `version` (12030 is 12.3), of the libcuda.so.1 in
/// front; nullptr where there is none.
SIMGPU_API void* driver_function(const char* name, int version);

}  // namespace gapless::simgpu
