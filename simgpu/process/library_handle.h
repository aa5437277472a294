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

extern "C" {
/// Called by generated functions that compute: puts work on the handle's stream. 0; 1 for something
/// that is no handle.
SIMGPU_API int simgpu_work(const void* handle);
}
