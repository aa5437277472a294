// Calls on captures and graphs that libcudart and libcuda both have, under their two names.
//
//   cudaStreamBeginCapture --,
//   cuStreamBeginCapture   --+-- graph_calls::begin_capture
//
// Each answers with the error's number, which is the same in both; handles are the program's.
#pragma once

#include <cstddef>

#include "simgpu/process/process.h"

namespace gapless::simgpu::graph_calls {

/// `graph`: the one that nodes are added to, after those named; nullptr for a new one.
SIMGPU_API int begin_capture(void* stream, void* graph, void* const* dependencies,
                             std::size_t count, int mode);
SIMGPU_API int end_capture(void* stream, void** graph);
SIMGPU_API int destroy(void* graph);
SIMGPU_API int instantiate(void** exec, void* graph);
SIMGPU_API int destroy_exec(void* exec);
SIMGPU_API int launch(void* exec, void* stream);

/// So many references less; the last one destroys what the object keeps.
SIMGPU_API void release(UserObject* object, unsigned count);

}  // namespace gapless::simgpu::graph_calls
