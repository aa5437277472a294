// Host memory that devices reach, by the driver's functions, and what a pointer is.
//
//   cuMemHostAlloc                        pinned: devices reach it by the same address
//   cuPointerGetAttribute(HOST MEMORY)    Triton asks whether its kernels can
#include <cstdlib>
#include <optional>

#include "simgpu/front/cuda/common.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

// CUpointer_attribute
enum Attribute : int {
  kContext = 1,
  kMemoryType = 2,
  kDevicePointer = 3,
  kHostPointer = 4,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kRangeStart = 11,
  kRangeSize = 12,
};

// What is known of the memory that an address lies in.
struct Reached {
  int device;
  std::uint64_t begin;
  std::uint64_t bytes;
  bool on_host;
  bool managed;
};

std::optional<Reached> reached_at(Process& process, std::uint64_t address) {
  if (const auto span = process.memory.find(address)) {
    return Reached{span->device, span->begin, span->bytes, false, false};
  }
  auto host = process.host_memory.upper_bound(address);
  if (host == process.host_memory.begin()) return {};
  --host;
  if (address >= host->first + host->second.bytes) return {};
  return Reached{Process::current(), host->first, host->second.bytes, true, !host->second.pinned};
}

}  // namespace

CUDA int cuPointerGetAttribute(void* value, int attribute, std::uint64_t address) {
  const Entry entry;
  const std::optional<Reached> place = reached_at(entry.process, address);
  if (!place) return kInvalidValue;
  switch (attribute) {
    case kContext:
      *static_cast<void**>(value) = context_of(place->device);
      return kSuccess;
    case kMemoryType:  // CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE
      *static_cast<int*>(value) = place->on_host && !place->managed ? 1 : 2;
      return kSuccess;
    case kHostPointer:
      if (!place->on_host) return kInvalidValue;
      [[fallthrough]];
    case kDevicePointer:
      *static_cast<std::uint64_t*>(value) = address;
      return kSuccess;
    case kBufferId:
    case kRangeStart:
      *static_cast<std::uint64_t*>(value) = place->begin;
      return kSuccess;
    case kIsManaged:
      *static_cast<int*>(value) = place->managed ? 1 : 0;
      return kSuccess;
    case kDeviceOrdinal:
      *static_cast<int*>(value) = place->device;
      return kSuccess;
    case kRangeSize:
      *static_cast<std::size_t*>(value) = place->bytes;
      return kSuccess;
    default:
      return kNotSupported;
  }
}

CUDA int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  const Entry entry;
  if (pointer == nullptr || bytes == 0) return kInvalidValue;
  *pointer = entry.process.allocate_host(bytes, /*pinned=*/true);
  return *pointer != nullptr ? kSuccess : kOutOfMemory;
}
CUDA int cuMemAllocHost_v2(void** pointer, std::size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, 0);
}
CUDA int cuMemFreeHost(void* pointer) {
  const Entry entry;
  const HostMemory* const host = entry.process.host_memory_of(pointer);
  if (host == nullptr || !host->ours || !host->pinned || !entry.process.drop_host(pointer)) {
    return kInvalidValue;
  }
  std::free(pointer);
  return kSuccess;
}
CUDA int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned) {
  constexpr int kAlreadyRegistered = 712;
  const Entry entry;
  if (pointer == nullptr || bytes == 0) return kInvalidValue;
  if (entry.process.host_memory_of(pointer) != nullptr) return kAlreadyRegistered;
  entry.process.keep_host(pointer, {bytes, /*ours=*/false, /*pinned=*/true});
  return kSuccess;
}
CUDA int cuMemHostUnregister(void* pointer) {
  constexpr int kNotRegistered = 713;
  const Entry entry;
  const HostMemory* const host = entry.process.host_memory_of(pointer);
  if (host == nullptr || host->ours) return kNotRegistered;
  return entry.process.drop_host(pointer) ? kSuccess : kNotRegistered;
}
CUDA int cuMemHostGetDevicePointer_v2(std::uint64_t* device, void* host, unsigned) {
  const Entry entry;
  if (entry.process.host_memory_of(host) == nullptr) return kInvalidValue;
  *device = reinterpret_cast<std::uint64_t>(host);
  return kSuccess;
}
CUDA int cuMemHostGetFlags(unsigned* flags, void* host) {
  const Entry entry;
  if (entry.process.host_memory_of(host) == nullptr) return kInvalidValue;
  *flags = 0;
  return kSuccess;
}
