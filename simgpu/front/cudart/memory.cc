// Memory: cudaMalloc and its kin, host memory, copies and fills, what a pointer is.
#include <cstdlib>
#include <cstring>

#include "allocator/base/bytes.h"
#include "simgpu/front/cudart/common.h"
#include "simgpu/process/python_watch.h"
#include "simgpu/process/stream_calls.h"
#include "simgpu/process/values.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

DeviceAddress address_of(const void* pointer) { return reinterpret_cast<DeviceAddress>(pointer); }

int allocate(Process& process, void** pointer, std::size_t bytes) {
  if (pointer == nullptr) return answer(abi::invalid_value);
  *pointer = nullptr;
  if (bytes == 0) return abi::success;
  if (stream_calls::forbidden_while_capturing(process)) {
    return answer(abi::stream_capture_unsupported);
  }
  process.memory.ensure_context(Process::current());
  DeviceAddress address = 0;
  const int device = Process::current();
  const DriverStatus status = process.memory.alloc(device, bytes, address);
  *pointer = reinterpret_cast<void*>(address);
  return answer(note_request(process, device, bytes, status, /*by_driver=*/false));
}

int release(Process& process, void* pointer) {
  if (pointer == nullptr) return abi::success;
  if (stream_calls::forbidden_while_capturing(process)) {
    return answer(abi::stream_capture_unsupported);
  }
  const auto& known = process.host_memory;
  const auto found = known.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == known.end() || found->second.pinned) {
    return answer(process.memory.free(address_of(pointer)));
  }
  (void)process.drop_host(pointer);  // managed
  std::free(pointer);
  return abi::success;
}

// Memory that the host and the device see: the host's own.
int allocate_host(void** pointer, std::size_t bytes) {
  const Entry entry;
  *pointer = nullptr;
  if (bytes == 0) return abi::success;
  *pointer = entry.process.allocate_host(bytes, /*pinned=*/true);
  return *pointer != nullptr ? abi::success : answer(abi::memory_allocation);
}

void note_unknown_read(const void* source, std::size_t bytes) {
  std::uint64_t times = 0;
  {
    const Entry entry;
    times = entry.process.reads.read(address_of(source), bytes);
  }
  if (times != 0) tell_python_of_reads(times);
  const SimgpuOperator& where = *simgpu_operator();
  if (where.computing != 0) return;  // what an operator reads is its own affair
  const Estimate read = where.reads < 0 ? Estimate::number : static_cast<Estimate>(where.reads);
  if (read == Estimate::number && bytes > ReadWatch::kLargest) return;  // a checkpoint
  note_estimate(read);
}

int copy(void* target, const void* source, std::size_t bytes, void* stream) {
  bool unknown = false;
  const int error = stream_calls::copy(target, source, bytes, stream, unknown);
  if (unknown) note_unknown_read(source, bytes);
  return answer(error);
}

int fill(void* target, int value, std::size_t bytes, void* stream) {
  return answer(stream_calls::fill(target, static_cast<std::uint8_t>(value), 1, bytes, stream));
}

}  // namespace

CUDART int cudaMalloc(void** pointer, std::size_t bytes) {
  const Entry entry(DriverCall::mem_alloc);
  return allocate(entry.process, pointer, bytes);
}
CUDART int cudaFree(void* pointer) {
  const Entry entry(DriverCall::mem_free);
  return release(entry.process, pointer);
}
CUDART int cudaMallocHost(void** pointer, std::size_t bytes) {
  return allocate_host(pointer, bytes);
}
CUDART int cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return allocate_host(pointer, bytes);
}
CUDART int cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return abi::success;
  const Entry entry;
  const auto& known = entry.process.host_memory;
  const auto found = known.find(reinterpret_cast<std::uintptr_t>(pointer));
  // What the program registered is not ours to free.
  if (found == known.end() || !found->second.ours) return answer(abi::invalid_value);
  (void)entry.process.drop_host(pointer);
  std::free(pointer);
  return abi::success;
}
CUDART int cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  const Entry entry;
  if (entry.process.host_memory.contains(reinterpret_cast<std::uintptr_t>(pointer))) {
    return answer(abi::host_memory_already_registered);
  }
  entry.process.keep_host(pointer, {bytes, /*ours=*/false, /*pinned=*/true});
  return abi::success;
}
CUDART int cudaHostUnregister(void* pointer) {
  const Entry entry;
  return answer(entry.process.drop_host(pointer) ? abi::success : abi::host_memory_not_registered);
}
CUDART int cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  const Entry entry;
  if (entry.process.host_memory_of(host) == nullptr) return answer(abi::invalid_value);
  *device = host;
  return abi::success;
}
CUDART int cudaHostGetFlags(unsigned* flags, void*) {
  *flags = 0;
  return abi::success;
}

CUDART int cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Entry entry(DriverCall::mem_info);
  const int device = Process::current();
  entry.process.memory.ensure_context(device);
  *free = entry.process.memory.free_bytes(device);
  *total = entry.process.memory.total_bytes(device);
  return abi::success;
}

CUDART int cudaPointerGetAttributes(abi::PointerAttributes* attributes, const void* pointer) {
  const Entry entry;
  std::memset(attributes, 0, sizeof *attributes);
  attributes->device = -2;
  if (const auto span = entry.process.memory.find(address_of(pointer))) {
    attributes->type = abi::device;
    attributes->device = span->device;
    attributes->devicePointer = const_cast<void*>(pointer);
    return abi::success;
  }
  if (const HostMemory* const host = entry.process.host_memory_of(pointer)) {
    attributes->type = host->pinned ? abi::host : abi::managed;
    attributes->device = Process::current();
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
    return abi::success;
  }
  attributes->hostPointer = const_cast<void*>(pointer);
  return abi::success;
}

// --- copies and fills ----------------------------------------------------------------------------

CUDART int cudaMemcpy(void* target, const void* source, std::size_t bytes, int) {
  const int error = copy(target, source, bytes, nullptr);
  const Entry entry;
  if (Stream* stream = stream_of(entry.process, nullptr); !stream->capture) {
    entry.process.streams.time().synchronize_stream(stream->index);
  }
  return error;
}
CUDART int cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, int, void* stream) {
  return copy(target, source, bytes, stream);
}
CUDART int cudaMemcpyPeer(void* target, int, const void* source, int, std::size_t bytes) {
  return copy(target, source, bytes, nullptr);
}
CUDART int cudaMemcpyPeerAsync(void* target, int, const void* source, int, std::size_t bytes,
                               void* stream) {
  return copy(target, source, bytes, stream);
}
CUDART int cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source,
                             std::size_t source_pitch, std::size_t width, std::size_t height, int,
                             void* stream) {
  for (std::size_t row = 0; row < height; ++row) {
    const int error = copy(static_cast<char*>(target) + row * target_pitch,
                           static_cast<const char*>(source) + row * source_pitch, width, stream);
    if (error != abi::success) return error;
  }
  return abi::success;
}
CUDART int cudaMemcpy2D(void* target, std::size_t target_pitch, const void* source,
                        std::size_t source_pitch, std::size_t width, std::size_t height, int kind) {
  return cudaMemcpy2DAsync(target, target_pitch, source, source_pitch, width, height, kind,
                           nullptr);
}
CUDART int cudaMemset(void* target, int value, std::size_t bytes) {
  return fill(target, value, bytes, nullptr);
}
CUDART int cudaMemsetAsync(void* target, int value, std::size_t bytes, void* stream) {
  return fill(target, value, bytes, stream);
}

// --- variables of the device ---------------------------------------------------------------------

CUDART int cudaGetSymbolAddress(void** pointer, const void* symbol) {
  const Entry entry;
  const auto& sizes = Process::registered().variable_bytes;
  const auto bytes = sizes.find(symbol);
  if (bytes == sizes.end()) return answer(abi::invalid_symbol);
  DeviceAddress& address = entry.process.variables[symbol];
  if (address == 0) {
    entry.process.memory.ensure_context(Process::current());
    const DriverStatus status =
        entry.process.memory.alloc(Process::current(), bytes->second, address);
    if (status != DriverStatus::ok) return answer(status);
  }
  *pointer = reinterpret_cast<void*>(address);
  return abi::success;
}
CUDART int cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  const Entry entry;
  const auto& sizes = Process::registered().variable_bytes;
  const auto found = sizes.find(symbol);
  if (found == sizes.end()) return answer(abi::invalid_symbol);
  *bytes = found->second;
  return abi::success;
}
CUDART int cudaMemcpyToSymbol(const void* symbol, const void* source, std::size_t bytes,
                              std::size_t offset, int) {
  void* pointer = nullptr;
  const int error = cudaGetSymbolAddress(&pointer, symbol);
  if (error != abi::success) return error;
  return copy(static_cast<char*>(pointer) + offset, source, bytes, nullptr);
}
CUDART int cudaMemcpyToSymbolAsync(const void* symbol, const void* source, std::size_t bytes,
                                   std::size_t offset, int, void* stream) {
  void* pointer = nullptr;
  const int error = cudaGetSymbolAddress(&pointer, symbol);
  if (error != abi::success) return error;
  return copy(static_cast<char*>(pointer) + offset, source, bytes, stream);
}
CUDART int cudaMemcpyFromSymbol(void* target, const void* symbol, std::size_t bytes,
                                std::size_t offset, int) {
  void* pointer = nullptr;
  const int error = cudaGetSymbolAddress(&pointer, symbol);
  if (error != abi::success) return error;
  return copy(target, static_cast<char*>(pointer) + offset, bytes, nullptr);
}
