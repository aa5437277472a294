#include "simgpu/process/stream_calls.h"

#include <algorithm>
#include <cstring>

#include "simgpu/abi/runtime_abi.h"
#include "simgpu/process/memory_trace.h"
#include "simgpu/process/values.h"

namespace gapless::simgpu::stream_calls {
namespace {

Stream* stream_of(Process& process, void* handle) {
  return process.streams.find(handle, Process::current());
}

Event* event_of(Process& process, void* handle) {
  auto* event = static_cast<Event*>(handle);
  return process.streams.known(event) ? event : nullptr;
}

int& thread_mode() {
  thread_local int mode = static_cast<int>(CaptureMode::global);
  return mode;
}

// The stream, if it may be asked or waited for: not while it captures.
int idle_stream(Process& process, void* handle, Stream*& stream) {
  stream = stream_of(process, handle);
  if (stream == nullptr) return abi::invalid_resource_handle;
  if (process.kernel_error != abi::success) return process.kernel_error;
  if (stream->capture) stream->capture->invalid = true;
  return stream->capture || forbidden_while_capturing(process) ? abi::stream_capture_unsupported
                                                               : abi::success;
}

// The event, if it may be asked or waited for: not one that a capture recorded, and not while one
// could be held up by it.
int outside_event(Process& process, void* handle, Event*& event) {
  event = event_of(process, handle);
  if (event == nullptr) return abi::invalid_resource_handle;
  if (process.kernel_error != abi::success) return process.kernel_error;
  if (event->capture) return abi::captured_event;
  return forbidden_while_capturing(process) ? abi::stream_capture_unsupported : abi::success;
}

}  // namespace

int create(void** stream, unsigned flags, int priority) {
  const Entry entry;
  entry.process.memory.ensure_context(Process::current());
  *stream = entry.process.streams.create(Process::current(), flags, priority);
  return abi::success;
}

int destroy(void* handle) {
  const Entry entry;
  auto* stream = static_cast<Stream*>(handle);
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2 || !entry.process.streams.known(stream)) {
    return abi::invalid_resource_handle;
  }
  entry.process.streams.destroy(stream);
  return abi::success;
}

int synchronize(void* handle) {
  const Entry entry(DriverCall::stream_synchronize);
  Stream* stream = nullptr;
  const int error = idle_stream(entry.process, handle, stream);
  if (error == abi::success) entry.process.streams.time().synchronize_stream(stream->index);
  return error;
}

int query(void* handle) {
  const Entry entry;
  Stream* stream = nullptr;
  const int error = idle_stream(entry.process, handle, stream);
  if (error != abi::success) return error;
  return entry.process.streams.time().idle(stream->index) ? abi::success : abi::not_ready;
}

int wait_event(void* handle, void* event_handle) {
  const Entry entry(DriverCall::stream_wait_event);
  Stream* stream = stream_of(entry.process, handle);
  Event* event = event_of(entry.process, event_handle);
  if (stream == nullptr || event == nullptr) return abi::invalid_resource_handle;
  return entry.process.streams.wait(*stream, *event) ? abi::success : abi::stream_capture_isolation;
}

int is_capturing(void* handle, int* status) {
  return capture_info(handle, {status, nullptr, nullptr, nullptr, nullptr});
}

int capture_info(void* handle, const CaptureInfo& info) {
  const Entry entry;
  const Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return abi::invalid_resource_handle;
  const Capture* capture = stream->capture.get();
  *info.status = capture == nullptr ? 0 : capture->invalid ? 2 : 1;
  if (info.id != nullptr) *info.id = capture != nullptr ? capture->id : 0;
  if (info.graph != nullptr) *info.graph = capture != nullptr ? capture->graph : nullptr;
  if (info.dependencies != nullptr) {
    *info.dependencies = reinterpret_cast<void* const*>(stream->last.data());
  }
  if (info.dependency_count != nullptr) *info.dependency_count = stream->last.size();
  return abi::success;
}

int node_dependencies(void* handle, void** dependencies, std::size_t* count) {
  const Entry entry;
  const auto& nodes = static_cast<const GraphNode*>(handle)->depends_on;
  if (dependencies != nullptr) {
    std::copy_n(nodes.begin(), std::min(*count, nodes.size()), dependencies);
  }
  *count = nodes.size();
  return abi::success;
}

int exchange_capture_mode(int* mode) {
  std::swap(thread_mode(), *mode);
  return abi::success;
}

bool forbidden_while_capturing(Process& process) {
  return process.streams.invalidate_captures(static_cast<CaptureMode>(thread_mode()));
}

// --- events --------------------------------------------------------------------------------------

int create_event(void** event, unsigned flags) {
  const Entry entry(DriverCall::event_create);
  entry.process.memory.ensure_context(Process::current());
  *event = entry.process.streams.create_event(Process::current(), flags);
  return abi::success;
}

int destroy_event(void* handle) {
  const Entry entry(DriverCall::event_destroy);
  Event* event = event_of(entry.process, handle);
  if (event == nullptr) return abi::invalid_resource_handle;
  entry.process.streams.destroy_event(event);
  return abi::success;
}

int record_event(void* handle, void* stream_handle) {
  const Entry entry(DriverCall::event_record);
  Event* event = event_of(entry.process, handle);
  Stream* stream = stream_of(entry.process, stream_handle);
  if (stream == nullptr || event == nullptr || event->device != stream->device) {
    return abi::invalid_resource_handle;
  }
  entry.process.streams.record(*event, *stream);
  return abi::success;
}

int query_event(void* handle) {
  const Entry entry(DriverCall::event_query);
  Event* event = nullptr;
  const int error = outside_event(entry.process, handle, event);
  if (error != abi::success) return error;
  if (!event->recorded) return abi::success;
  return entry.process.streams.time().query(event->handle) ? abi::success : abi::not_ready;
}

int synchronize_event(void* handle) {
  const Entry entry(DriverCall::event_synchronize);
  Event* event = nullptr;
  const int error = outside_event(entry.process, handle, event);
  if (error != abi::success) return error;
  if (event->recorded) entry.process.streams.time().synchronize_event(event->handle);
  return abi::success;
}

int synchronize_device() {
  const Entry entry(DriverCall::device_synchronize);
  if (forbidden_while_capturing(entry.process)) return abi::stream_capture_unsupported;
  entry.process.streams.time().synchronize_device(Process::current());
  return entry.process.kernel_error;
}

// --- contents ------------------------------------------------------------------------------------

int copy(void* target, const void* source, std::size_t bytes, void* handle, bool& unknown) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return abi::invalid_resource_handle;
  Process& process = entry.process;
  if (process.kernel_error != abi::success) return process.kernel_error;
  const auto to = reinterpret_cast<DeviceAddress>(target);
  const auto from = reinterpret_cast<DeviceAddress>(source);
  unknown = bytes != 0 && !process.memory.find(to) && process.memory.find(from) &&
            !process.memory.knows(from, bytes);
  const bool no_one_knows = unknown && process.memory.knowledge(from, bytes) == Knowledge::none;
  if (MemoryTrace::wanted() && bytes != 0 && process.memory.find(to) &&
      !process.memory.find(from)) {
    MemoryEvent event;
    event.kind = MemoryEvent::Kind::holds;
    event.holder = Holder::inputs;
    event.address = to;
    MemoryTrace::get().add(event);
  }
  const auto run = [&process, target, source, bytes] {
    return copy_any(process, target, source, bytes);
  };
  if (stream->capture) {
    process.streams.submit(*stream, NodeKind::copy, [run] { (void)run(); });
    return abi::success;
  }
  process.streams.submit(*stream, NodeKind::copy, {});
  if (!run()) return abi::invalid_value;
  if (const SimgpuOperator& where = *simgpu_operator();
      no_one_knows && where.has_answer && (bytes == 4 || bytes == 8)) {
    std::memcpy(target, &where.answer, bytes);
    unknown = false;
  }
  return abi::success;
}

int fill(void* target, std::uint32_t value, std::uint32_t width, std::size_t bytes, void* handle) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return abi::invalid_resource_handle;
  if (bytes == 0) return abi::success;
  Process& process = entry.process;
  if (process.kernel_error != abi::success) return process.kernel_error;
  const auto run = [&process, target, value, width, bytes] {
    if (process.host_memory_of(target) != nullptr) {
      std::memset(target, static_cast<int>(value), bytes);
      return true;
    }
    return process.memory.fill(reinterpret_cast<DeviceAddress>(target), value, width, bytes);
  };
  if (stream->capture) {
    process.streams.submit(*stream, NodeKind::fill, [run] { (void)run(); });
    return abi::success;
  }
  process.streams.submit(*stream, NodeKind::fill, {});
  return run() ? abi::success : abi::invalid_value;
}

}  // namespace gapless::simgpu::stream_calls
