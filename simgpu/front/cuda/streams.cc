// Streams, events, captures and graphs, as libcudart has them.
#include "simgpu/front/cuda/common.h"
#include "simgpu/process/graph_calls.h"
#include "simgpu/process/stream_calls.h"

using namespace gapless::simgpu;

CUDA int cuStreamCreate(void** stream, unsigned flags) {
  return stream_calls::create(stream, flags, 0);
}
CUDA int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return stream_calls::create(stream, flags, priority);
}
CUDA int cuStreamDestroy_v2(void* stream) { return stream_calls::destroy(stream); }
CUDA int cuStreamSynchronize(void* stream) { return stream_calls::synchronize(stream); }
CUDA int cuStreamQuery(void* stream) { return stream_calls::query(stream); }
CUDA int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  return stream_calls::wait_event(stream, event);
}
CUDA int cuEventCreate(void** event, unsigned flags) {
  return stream_calls::create_event(event, flags);
}
CUDA int cuEventDestroy_v2(void* event) { return stream_calls::destroy_event(event); }
CUDA int cuEventRecord(void* event, void* stream) {
  return stream_calls::record_event(event, stream);
}
CUDA int cuEventQuery(void* event) { return stream_calls::query_event(event); }
CUDA int cuEventSynchronize(void* event) { return stream_calls::synchronize_event(event); }

CUDA int cuStreamIsCapturing(void* stream, int* status) {
  return stream_calls::is_capturing(stream, status);
}
CUDA int cuStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id, void** graph,
                                   void* const** dependencies, std::size_t* count) {
  return stream_calls::capture_info(stream, {status, id, graph, dependencies, count});
}
CUDA int cuStreamGetCaptureInfo_v3(void* stream, int* status, unsigned long long* id, void** graph,
                                   void* const** dependencies, const void** edge_data,
                                   std::size_t* count) {
  if (edge_data != nullptr) *edge_data = nullptr;
  return stream_calls::capture_info(stream, {status, id, graph, dependencies, count});
}
CUDA int cuGraphNodeGetDependencies(void* node, void** dependencies, std::size_t* count) {
  return stream_calls::node_dependencies(node, dependencies, count);
}
CUDA int cuGraphNodeGetDependencies_v2(void* node, void** dependencies, void*, std::size_t* count) {
  return stream_calls::node_dependencies(node, dependencies, count);
}
CUDA int cuThreadExchangeStreamCaptureMode(int* mode) {
  return stream_calls::exchange_capture_mode(mode);
}

CUDA int cuStreamBeginCapture_v2(void* stream, int mode) {
  return graph_calls::begin_capture(stream, nullptr, nullptr, 0, mode);
}
CUDA int cuStreamEndCapture(void* stream, void** graph) {
  return graph_calls::end_capture(stream, graph);
}
CUDA int cuGraphDestroy(void* graph) { return graph_calls::destroy(graph); }
CUDA int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  return graph_calls::instantiate(exec, graph);
}
CUDA int cuGraphExecDestroy(void* exec) { return graph_calls::destroy_exec(exec); }
CUDA int cuGraphLaunch(void* exec, void* stream) { return graph_calls::launch(exec, stream); }
