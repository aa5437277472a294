// CUDA graphs: capture, nodes, instantiation, launch; user objects that live as long as a graph.
#include <algorithm>

#include "simgpu/front/cudart/common.h"
#include "simgpu/process/graph_calls.h"
#include "simgpu/process/stream_calls.h"

using namespace gapless;
using namespace gapless::simgpu;

CUDART int cudaStreamBeginCaptureToGraph(void* handle, void* graph, void* const* dependencies,
                                         const void*, std::size_t count, int mode) {
  return answer(graph_calls::begin_capture(handle, graph, dependencies, count, mode));
}
CUDART int cudaStreamBeginCapture(void* stream, int mode) {
  return cudaStreamBeginCaptureToGraph(stream, nullptr, nullptr, nullptr, 0, mode);
}
CUDART int cudaStreamEndCapture(void* stream, void** graph) {
  return answer(graph_calls::end_capture(stream, graph));
}
CUDART int cudaStreamIsCapturing(void* stream, int* status) {
  return answer(stream_calls::is_capturing(stream, status));
}
CUDART int cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id, void** graph,
                                    void* const** dependencies, const void** edge_data,
                                    std::size_t* count) {
  if (edge_data != nullptr) *edge_data = nullptr;
  return answer(stream_calls::capture_info(stream, {status, id, graph, dependencies, count}));
}
CUDART int cudaStreamUpdateCaptureDependencies(void* handle, void** dependencies, const void*,
                                               std::size_t count, unsigned flags) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return answer(abi::invalid_resource_handle);
  if (!stream->capture) return answer(abi::invalid_value);
  if ((flags & 1) != 0) stream->last.clear();  // cudaStreamSetCaptureDependencies
  for (std::size_t i = 0; i < count; ++i) {
    stream->last.push_back(static_cast<GraphNode*>(dependencies[i]));
  }
  return abi::success;
}
CUDART int cudaThreadExchangeStreamCaptureMode(int* mode) {
  return answer(stream_calls::exchange_capture_mode(mode));
}

// --- graphs --------------------------------------------------------------------------------------

CUDART int cudaGraphCreate(void** graph, unsigned) {
  *graph = new Graph;
  return abi::success;
}
CUDART int cudaGraphDestroy(void* graph) { return answer(graph_calls::destroy(graph)); }
CUDART int cudaGraphInstantiate(void** exec, void* graph, unsigned long long) {
  return graph_calls::instantiate(exec, graph);
}
CUDART int cudaGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  return graph_calls::instantiate(exec, graph);
}
CUDART int cudaGraphExecDestroy(void* exec) { return answer(graph_calls::destroy_exec(exec)); }
CUDART int cudaGraphUpload(void*, void*) { return abi::success; }
CUDART int cudaGraphLaunch(void* exec, void* stream) {
  return answer(graph_calls::launch(exec, stream));
}
CUDART int cudaGraphGetNodes(void* handle, void** nodes, std::size_t* count) {
  const Entry entry;
  const auto* graph = static_cast<const Graph*>(handle);
  if (nodes != nullptr) {
    for (std::size_t i = 0; i < std::min(*count, graph->nodes.size()); ++i) {
      nodes[i] = graph->nodes[i].get();
    }
  }
  *count = graph->nodes.size();
  return abi::success;
}
CUDART int cudaGraphNodeGetType(void* handle, int* type) {
  *type = static_cast<int>(static_cast<const GraphNode*>(handle)->kind);
  return abi::success;
}
CUDART int cudaGraphNodeGetDependencies(void* node, void** dependencies, void*,
                                        std::size_t* count) {
  return answer(stream_calls::node_dependencies(node, dependencies, count));
}
CUDART int cudaGraphAddEmptyNode(void** node, void* graph, void* const* dependencies,
                                 std::size_t count) {
  const Entry entry;
  std::vector<GraphNode*> depends_on;
  for (std::size_t i = 0; i < count; ++i) {
    depends_on.push_back(static_cast<GraphNode*>(dependencies[i]));
  }
  *node = static_cast<Graph*>(graph)->add(NodeKind::empty, std::move(depends_on));
  return abi::success;
}
CUDART int cudaGraphAddNode(void** node, void* graph, void* const* dependencies, const void*,
                            std::size_t count, const int* parameters) {
  const int error = cudaGraphAddEmptyNode(node, graph, dependencies, count);
  static_cast<GraphNode*>(*node)->kind = static_cast<NodeKind>(*parameters);
  return error;
}
CUDART int cudaGraphKernelNodeGetParams(void* handle, abi::KernelNodeParams* parameters) {
  *parameters = {};
  parameters->func = const_cast<void*>(static_cast<const GraphNode*>(handle)->function);
  return abi::success;
}
CUDART int cudaGraphDebugDotPrint(void*, const char*, unsigned) { return abi::success; }
CUDART int cudaDeviceGetGraphMemAttribute(int, int, void* value) {
  *static_cast<std::uint64_t*>(value) = 0;
  return abi::success;
}
CUDART int cudaDeviceSetGraphMemAttribute(int, int, void*) { return abi::success; }
CUDART int cudaDeviceGraphMemTrim(int) { return abi::success; }

// --- user objects --------------------------------------------------------------------------------

CUDART int cudaUserObjectCreate(void** object, void* pointer, void (*destroy)(void*),
                                unsigned references, unsigned) {
  *object = new UserObject{pointer, destroy, references};
  return abi::success;
}
CUDART int cudaUserObjectRetain(void* object, unsigned count) {
  const Entry entry;
  static_cast<UserObject*>(object)->references += count;
  return abi::success;
}
CUDART int cudaUserObjectRelease(void* object, unsigned count) {
  const Entry entry;
  graph_calls::release(static_cast<UserObject*>(object), count);
  return abi::success;
}
CUDART int cudaGraphRetainUserObject(void* handle, void* object, unsigned count, unsigned flags) {
  const Entry entry;
  auto* kept = static_cast<UserObject*>(object);
  if ((flags & 1) == 0) kept->references += count;  // else the caller's references move
  static_cast<Graph*>(handle)->objects.emplace_back(kept, count);
  return abi::success;
}
CUDART int cudaGraphReleaseUserObject(void*, void*, unsigned) { return abi::success; }
