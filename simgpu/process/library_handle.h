// LibraryHandle: what cublasCreate, cudnnCreate, cusolverDnCreate and the like give: the stream
// that work goes to. The work itself does nothing; during capture it becomes a node of the graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simgpu/process/api.h"

namespace gapless::simgpu {

struct LibraryHandle {
  std::uint64_t magic = kMagic;
  void* stream = nullptr;
  int math_mode = 0;
  int pointer_mode = 0;

  static constexpr std::uint64_t kMagic = 0x6761706c65737321;
};

/// Puts a piece of work on a stream.
SIMGPU_API void submit_library_work(void* stream);

}  // namespace gapless::simgpu

// What generated functions call (front/stubs.py). A status of 0 is every library's success.
extern "C" {
/// Puts work on the handle's stream. 0; 1 for something that is no handle.
SIMGPU_API int simgpu_work(const void* handle);
/// A new handle goes to where `handle` points.
SIMGPU_API int simgpu_make(void* handle);
SIMGPU_API int simgpu_drop(void* handle);
SIMGPU_API int simgpu_set_stream(void* handle, void* stream);
/// One number of `width` bytes on the host, or `count` of them on a device, are zeros now.
SIMGPU_API void simgpu_zero(void* target, int width, int count);
/// A workspace was asked for whose true size is not known: peaks are lower bounds from here on.
SIMGPU_API void simgpu_guess(const char* library);
}
