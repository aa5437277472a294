// Streams, events and what runs on them.
#include "simgpu/front/cudart/common.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

int make_stream(void** stream, unsigned flags, int priority) {
  const Entry entry;
  entry.process.memory.ensure_context(Process::current());
  *stream = entry.process.streams.create(Process::current(), flags, priority);
  return abi::success;
}

int make_event(void** event, unsigned flags) {
  const Entry entry(DriverCall::event_create);
  entry.process.memory.ensure_context(Process::current());
  *event = entry.process.streams.create_event(Process::current(), flags);
  return abi::success;
}

Event* event_of(Process& process, void* handle) {
  auto* event = static_cast<Event*>(handle);
  return process.streams.known(event) ? event : nullptr;
}

template <class T, class U>
int read_stream(void* handle, T Stream::*field, U* value) {
  const Entry entry;
  const Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return answer(abi::invalid_resource_handle);
  *value = stream->*field;
  return abi::success;
}

}  // namespace

CUDART int cudaStreamCreate(void** stream) { return make_stream(stream, 0, 0); }
CUDART int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return make_stream(stream, flags, 0);
}
CUDART int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return make_stream(stream, flags, priority);
}
CUDART int cudaStreamDestroy(void* handle) {
  const Entry entry;
  auto* stream = static_cast<Stream*>(handle);
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2 || !entry.process.streams.known(stream)) {
    return answer(abi::invalid_resource_handle);
  }
  entry.process.streams.destroy(stream);
  return abi::success;
}
CUDART int cudaStreamGetPriority(void* handle, int* priority) {
  return read_stream(handle, &Stream::priority, priority);
}
CUDART int cudaStreamGetFlags(void* handle, unsigned* flags) {
  return read_stream(handle, &Stream::flags, flags);
}
CUDART int cudaStreamGetId(void* handle, unsigned long long* id) {
  return read_stream(handle, &Stream::id, id);
}
CUDART int cudaStreamGetDevice(void* handle, int* device) {
  return read_stream(handle, &Stream::device, device);
}
CUDART int cudaStreamSynchronize(void* handle) {
  const Entry entry(DriverCall::stream_synchronize);
  Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return answer(abi::invalid_resource_handle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return answer(abi::stream_capture_unsupported);
  }
  entry.process.streams.time().synchronize_stream(stream->index);
  return abi::success;
}
CUDART int cudaStreamQuery(void* handle) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return answer(abi::invalid_resource_handle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return answer(abi::stream_capture_unsupported);
  }
  return answer(entry.process.streams.time().idle(stream->index) ? abi::success : abi::not_ready);
}
CUDART int cudaStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  const Entry entry(DriverCall::stream_wait_event);
  Stream* stream = stream_of(entry.process, handle);
  Event* event = event_of(entry.process, event_handle);
  if (stream == nullptr || event == nullptr) return answer(abi::invalid_resource_handle);
  return answer(entry.process.streams.wait(*stream, *event) ? abi::success
                                                            : abi::stream_capture_isolation);
}

// --- events --------------------------------------------------------------------------------------

CUDART int cudaEventCreate(void** event) { return make_event(event, 0); }
CUDART int cudaEventCreateWithFlags(void** event, unsigned flags) {
  return make_event(event, flags);
}
CUDART int cudaEventDestroy(void* handle) {
  const Entry entry(DriverCall::event_destroy);
  Event* event = event_of(entry.process, handle);
  if (event == nullptr) return answer(abi::invalid_resource_handle);
  entry.process.streams.destroy_event(event);
  return abi::success;
}
CUDART int cudaEventRecord(void* handle, void* stream_handle) {
  const Entry entry(DriverCall::event_record);
  Event* event = event_of(entry.process, handle);
  Stream* stream = stream_of(entry.process, stream_handle);
  if (stream == nullptr || event == nullptr) return answer(abi::invalid_resource_handle);
  entry.process.streams.record(*event, *stream);
  return abi::success;
}
CUDART int cudaEventRecordWithFlags(void* event, void* stream, unsigned) {
  return cudaEventRecord(event, stream);
}
CUDART int cudaEventQuery(void* handle) {
  const Entry entry(DriverCall::event_query);
  Event* event = event_of(entry.process, handle);
  if (event == nullptr) return answer(abi::invalid_resource_handle);
  if (event->capture) return answer(abi::captured_event);
  if (!event->recorded) return abi::success;
  return answer(entry.process.streams.time().query(event->handle) ? abi::success : abi::not_ready);
}
CUDART int cudaEventSynchronize(void* handle) {
  const Entry entry(DriverCall::event_synchronize);
  Event* event = event_of(entry.process, handle);
  if (event == nullptr) return answer(abi::invalid_resource_handle);
  if (event->capture) return answer(abi::captured_event);
  if (event->recorded) entry.process.streams.time().synchronize_event(event->handle);
  return abi::success;
}
CUDART int cudaEventElapsedTime(float* ms, void* from_handle, void* to_handle) {
  const Entry entry;
  const Event* from = event_of(entry.process, from_handle);
  const Event* to = event_of(entry.process, to_handle);
  if (from == nullptr || to == nullptr || !from->recorded || !to->recorded) {
    return answer(abi::invalid_resource_handle);
  }
  *ms = entry.process.streams.elapsed_ms(*from, *to);
  return abi::success;
}

// --- host functions ------------------------------------------------------------------------------

CUDART int cudaLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  Process& process = Process::get();
  {
    const Entry entry;
    Stream* stream = stream_of(process, handle);
    if (stream == nullptr) return answer(abi::invalid_resource_handle);
    if (stream->capture) {
      process.streams.submit(*stream, NodeKind::host, [function, data] { function(data); });
      return abi::success;
    }
    process.streams.time().synchronize_stream(stream->index);
  }
  function(data);  // without the lock: it may take others
  return abi::success;
}
CUDART int cudaStreamAddCallback(void* stream, void (*callback)(void*, int, void*), void* data,
                                 unsigned) {
  callback(stream, abi::success, data);
  return abi::success;
}
