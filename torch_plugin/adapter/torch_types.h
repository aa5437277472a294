// PyTorch's types by the names that are the same in every version from 2.11 to 2.15.
//
// 2.11 moved several of them; c10::cuda::CUDACachingAllocator has kept the old names. Only headers
// of c10 are included here: a file that includes ATen takes four times as long to compile.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "allocator/device/allocator.h"

namespace gapless::torch_plugin {

/// gapless below this folder, by names that PyTorch's classes do not have too.
using Core = gapless::Allocator;
using DeviceCore = gapless::DeviceAllocator;

namespace torch_cuda = c10::cuda::CUDACachingAllocator;
using c10::MempoolId_t;
using torch_cuda::CUDAAllocator;
using torch_cuda::TraceEntry;

/// What a stack trace was gathered into; only PyTorch looks into it.
using Context = std::shared_ptr<c10::GatheredContext>;

inline DeviceAddress address_of(const void* pointer) {
  return reinterpret_cast<DeviceAddress>(pointer);
}
inline void* pointer_of(DeviceAddress address) { return reinterpret_cast<void*>(address); }
inline StreamHandle handle_of(cudaStream_t stream) {
  return reinterpret_cast<StreamHandle>(stream);
}

}  // namespace gapless::torch_plugin
