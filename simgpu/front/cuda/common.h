// What the files of the simulated libcuda share.
#pragma once

#include "allocator/driver/cuda_abi.h"
#include "simgpu/process/process.h"

#define CUDA extern "C" __attribute__((visibility("default")))

namespace gapless::simgpu {

/// CUresult, those that are answered here.
enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
};

inline int answer(DriverStatus status) { return static_cast<int>(status); }

/// A context is its device's number plus one, as a pointer.
inline void* context_of(int device) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(device) + 1);
}
inline int device_of(const void* context) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1;
}

}  // namespace gapless::simgpu
