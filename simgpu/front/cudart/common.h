// What the files of the simulated libcudart share.
#pragma once

#include "simgpu/abi/runtime_abi.h"
#include "simgpu/process/process.h"

#define CUDART extern "C" __attribute__((visibility("default")))

namespace gapless::simgpu {

/// The calling thread's last error, as cudaGetLastError gives it.
SIMGPU_API int& last_error();

/// Keeps an error for cudaGetLastError, and passes it on.
inline int answer(int error) {
  if (error != abi::success) last_error() = error;
  return error;
}
/// A driver's status is the runtime's error of the same number, but for a few.
inline int answer(DriverStatus status) { return answer(static_cast<int>(status)); }

/// The stream of a handle, or nullptr.
inline Stream* stream_of(Process& process, void* handle) {
  return process.streams.find(handle, Process::current());
}

}  // namespace gapless::simgpu
