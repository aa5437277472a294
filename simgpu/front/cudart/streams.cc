// Streams, events and what runs on them.
#include "simgpu/front/cudart/common.h"
#include "simgpu/process/stream_calls.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

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

CUDART int cudaStreamCreate(void** stream) { return answer(stream_calls::create(stream, 0, 0)); }
CUDART int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return answer(stream_calls::create(stream, flags, 0));
}
CUDART int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return answer(stream_calls::create(stream, flags, priority));
}
CUDART int cudaStreamDestroy(void* stream) { return answer(stream_calls::destroy(stream)); }
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
CUDART int cudaStreamSynchronize(void* stream) { return answer(stream_calls::synchronize(stream)); }
CUDART int cudaStreamQuery(void* stream) { return answer(stream_calls::query(stream)); }
CUDART int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  return answer(stream_calls::wait_event(stream, event));
}

// --- events --------------------------------------------------------------------------------------

CUDART int cudaEventCreate(void** event) { return answer(stream_calls::create_event(event, 0)); }
CUDART int cudaEventCreateWithFlags(void** event, unsigned flags) {
  return answer(stream_calls::create_event(event, flags));
}
CUDART int cudaEventDestroy(void* event) { return answer(stream_calls::destroy_event(event)); }
CUDART int cudaEventRecord(void* event, void* stream) {
  return answer(stream_calls::record_event(event, stream));
}
CUDART int cudaEventRecordWithFlags(void* event, void* stream, unsigned) {
  return cudaEventRecord(event, stream);
}
CUDART int cudaEventQuery(void* event) { return answer(stream_calls::query_event(event)); }
CUDART int cudaEventSynchronize(void* event) {
  return answer(stream_calls::synchronize_event(event));
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
