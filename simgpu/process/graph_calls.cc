#include "simgpu/process/graph_calls.h"

#include <algorithm>
#include <utility>

#include "simgpu/abi/runtime_abi.h"

namespace gapless::simgpu::graph_calls {
namespace {

Stream* stream_of(Process& process, void* handle) {
  return process.streams.find(handle, Process::current());
}

void release_all(std::vector<std::pair<UserObject*, unsigned>>& objects) {
  for (const auto& [object, count] : objects) release(object, count);
  objects.clear();
}

}  // namespace

void release(UserObject* object, unsigned count) {
  object->references -= std::min(count, object->references);
  if (object->references != 0) return;
  object->destroy(object->pointer);
  delete object;
}

int begin_capture(void* handle, void* graph, void* const* dependencies, std::size_t count,
                  int mode) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return abi::invalid_resource_handle;
  if (stream->capture) return abi::stream_capture_unmatched;
  // The legacy default stream cannot be captured.
  if (reinterpret_cast<std::uintptr_t>(handle) <= 1) return abi::stream_capture_unsupported;
  std::vector<GraphNode*> depends_on;
  for (std::size_t i = 0; i < count; ++i) {
    depends_on.push_back(static_cast<GraphNode*>(dependencies[i]));
  }
  entry.process.streams.begin_capture(*stream, static_cast<CaptureMode>(mode),
                                      static_cast<Graph*>(graph), std::move(depends_on));
  return abi::success;
}

int end_capture(void* handle, void** graph) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return abi::invalid_resource_handle;
  *graph = nullptr;
  if (!stream->capture) return abi::invalid_value;
  if (stream->capture->origin != stream) return abi::stream_capture_unmatched;
  *graph = entry.process.streams.end_capture(*stream);
  return *graph == nullptr ? abi::stream_capture_invalidated : abi::success;
}

int destroy(void* handle) {
  const Entry entry;
  auto* graph = static_cast<Graph*>(handle);
  if (graph == nullptr) return abi::invalid_value;
  release_all(graph->objects);
  delete graph;
  return abi::success;
}

int instantiate(void** result, void* graph_handle) {
  const Entry entry;
  auto* graph = static_cast<Graph*>(graph_handle);
  auto* exec = new GraphExec;
  exec->memory = graph->memory;
  exec->writes = graph->writes;
  for (const auto& node : graph->nodes) {
    if (node->run) exec->steps.push_back(node->run);
  }
  for (const auto& [object, count] : graph->objects) {
    object->references += count;
    exec->objects.emplace_back(object, count);
  }
  *result = exec;
  return abi::success;
}

int destroy_exec(void* handle) {
  const Entry entry;
  auto* exec = static_cast<GraphExec*>(handle);
  if (exec == nullptr) return abi::invalid_value;
  release_all(exec->objects);
  delete exec;
  return abi::success;
}

int launch(void* handle, void* stream_handle) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, stream_handle);
  if (stream == nullptr || handle == nullptr) return abi::invalid_resource_handle;
  const auto* exec = static_cast<const GraphExec*>(handle);
  // What kernels write is not computed, whenever in the graph that is.
  const auto forget = [&process = entry.process, writes = exec->writes] {
    for (const auto& [address, bytes] : writes) process.memory.forget(address, bytes);
  };
  if (!exec->writes.empty()) entry.process.streams.submit(*stream, NodeKind::host, forget);
  for (const auto& step : exec->steps) entry.process.streams.submit(*stream, NodeKind::host, step);
  if (!exec->writes.empty()) entry.process.streams.submit(*stream, NodeKind::host, forget);
  return abi::success;
}

}  // namespace gapless::simgpu::graph_calls
