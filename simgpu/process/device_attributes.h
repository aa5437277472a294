// Device attributes: cudaDeviceAttr and CUdevice_attribute, which share their numbers.
#pragma once

#include "simgpu/process/api.h"
#include "simgpu/process/gpu_profile.h"

namespace gapless::simgpu {

/// 0 for an attribute that is not known.
SIMGPU_API int device_attribute(const GpuProfile& gpu, int attribute);

}  // namespace gapless::simgpu
