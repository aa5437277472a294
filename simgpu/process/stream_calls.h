// Calls on streams and events that libcudart and libcuda both have, under their two names.
//
//   cudaStreamWaitEvent --,
//   cuStreamWaitEvent   --+-- stream_calls::wait_event
//
// Each answers with the error's number, which is the same in both; handles are the program's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simgpu/process/process.h"

namespace gapless::simgpu::stream_calls {

/// How far a stream's capture has come, as cudaStreamGetCaptureInfo tells it; what is null is left
/// out.
struct CaptureInfo {
  int* status;  // cudaStreamCaptureStatus
  unsigned long long* id;
  void** graph;
  void* const** dependencies;
  std::size_t* dependency_count;
};

SIMGPU_API int create(void** stream, unsigned flags, int priority);
SIMGPU_API int destroy(void* stream);
SIMGPU_API int synchronize(void* stream);
SIMGPU_API int query(void* stream);
SIMGPU_API int wait_event(void* stream, void* event);
SIMGPU_API int is_capturing(void* stream, int* status);
SIMGPU_API int capture_info(void* stream, const CaptureInfo& info);
/// The nodes that `node` comes right after; *count: how many there is room for, and how many it
/// has.
SIMGPU_API int node_dependencies(void* node, void** dependencies, std::size_t* count);
/// The calling thread's mode, which *mode becomes.
SIMGPU_API int exchange_capture_mode(int* mode);

SIMGPU_API int create_event(void** event, unsigned flags);
SIMGPU_API int destroy_event(void* event);
SIMGPU_API int record_event(void* event, void* stream);
SIMGPU_API int query_event(void* event);
SIMGPU_API int synchronize_event(void* event);

SIMGPU_API int synchronize_device();

/// A copy between any two places, in stream order; `unknown`: device memory is read whose contents
/// nobody knows.
SIMGPU_API int copy(void* target, const void* source, std::size_t bytes, void* stream,
                    bool& unknown);
/// `bytes` bytes from target on become `value`, `width` bytes of it (1, 2 or 4) over and over.
SIMGPU_API int fill(void* target, std::uint32_t value, std::uint32_t width, std::size_t bytes,
                    void* stream);

/// Whether the call that the thread makes now could wait for other streams while one captures, and
/// the thread did not say that it does not (cudaThreadExchangeStreamCaptureMode). CUDA refuses such
/// calls, and the capture becomes invalid.
SIMGPU_API bool forbidden_while_capturing(Process& process);

}  // namespace gapless::simgpu::stream_calls
