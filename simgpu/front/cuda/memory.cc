// Memory: plain allocations and virtual memory management.
#include <cstring>
#include <string>

#include "simgpu/front/cuda/common.h"
#include "simgpu/process/stream_calls.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

void* pointer_of(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Or pinned memory, which a device reaches by the same addresses.
bool is_device_memory(std::uint64_t address, std::size_t bytes) {
  const Entry entry;
  return bytes == 0 || entry.process.memory.find(address) ||
         entry.process.host_memory_of(pointer_of(address)) != nullptr;
}

ShareType share_type_of(int handle_types) {
  constexpr int kPosixFileDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  return (handle_types & kPosixFileDescriptor) != 0 ? ShareType::fd : ShareType::none;
}

}  // namespace

// --- plain ---------------------------------------------------------------------------------------

CUDA int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  const Entry entry(DriverCall::mem_info);
  *free = entry.process.memory.free_bytes(Process::current());
  *total = entry.process.memory.total_bytes(Process::current());
  return kSuccess;
}
CUDA int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  const Entry entry(DriverCall::mem_alloc);
  if (bytes == 0) return kInvalidValue;
  if (stream_calls::forbidden_while_capturing(entry.process)) return kCaptureUnsupported;
  const int device = Process::current();
  return answer(note_request(entry.process, device, bytes,
                             entry.process.memory.alloc(device, bytes, *address),
                             /*by_driver=*/true));
}
CUDA int cuMemFree_v2(std::uint64_t address) {
  const Entry entry(DriverCall::mem_free);
  if (stream_calls::forbidden_while_capturing(entry.process)) return kCaptureUnsupported;
  return answer(entry.process.memory.free(address));
}
CUDA int cuMemGetAddressRange_v2(std::uint64_t* begin, std::size_t* bytes, std::uint64_t address) {
  const Entry entry;
  const auto span = entry.process.memory.find(address);
  if (!span) return kNotFound;
  if (begin != nullptr) *begin = span->begin;
  if (bytes != nullptr) *bytes = span->bytes;
  return kSuccess;
}
CUDA int cuMemsetD8Async(std::uint64_t address, unsigned char value, std::size_t count,
                         void* stream) {
  return stream_calls::fill(pointer_of(address), value, 1, count, stream);
}
CUDA int cuMemsetD32Async(std::uint64_t address, unsigned value, std::size_t count, void* stream) {
  return stream_calls::fill(pointer_of(address), value, 4, 4 * count, stream);
}
CUDA int cuMemcpyHtoDAsync_v2(std::uint64_t target, const void* source, std::size_t bytes,
                              void* stream) {
  if (!is_device_memory(target, bytes)) return kInvalidValue;
  bool unknown = false;
  return stream_calls::copy(pointer_of(target), source, bytes, stream, unknown);
}
CUDA int cuMemcpyDtoHAsync_v2(void* target, std::uint64_t source, std::size_t bytes, void* stream) {
  if (!is_device_memory(source, bytes)) return kInvalidValue;
  bool unknown = false;
  return stream_calls::copy(target, pointer_of(source), bytes, stream, unknown);
}
CUDA int cuMemcpyHtoD_v2(std::uint64_t target, const void* source, std::size_t bytes) {
  return cuMemcpyHtoDAsync_v2(target, source, bytes, nullptr);
}
CUDA int cuMemcpyDtoH_v2(void* target, std::uint64_t source, std::size_t bytes) {
  return cuMemcpyDtoHAsync_v2(target, source, bytes, nullptr);
}
CUDA int cuStreamWriteValue32_v2(void*, std::uint64_t address, unsigned value, unsigned) {
  const Entry entry;
  return entry.process.memory.fill(address, value, 4, 4) ? kSuccess : kInvalidValue;
}

// --- virtual memory management -------------------------------------------------------------------

CUDA int cuMemGetAllocationGranularity(std::size_t* bytes, const cuda_abi::MemAllocationProp*,
                                       int) {
  *bytes = std::size_t{2} << 20;
  return kSuccess;
}
CUDA int cuMemAddressReserve(std::uint64_t* address, std::size_t bytes, std::size_t alignment,
                             std::uint64_t, unsigned long long) {
  const Entry entry(DriverCall::address_reserve);
  std::string misuse;
  return answer(entry.process.memory.model().reserve(bytes, alignment, *address, misuse));
}
CUDA int cuMemAddressFree(std::uint64_t address, std::size_t bytes) {
  const Entry entry(DriverCall::address_free);
  std::string misuse;
  return answer(entry.process.memory.model().free_reservation(address, bytes, misuse));
}
CUDA int cuMemCreate(std::uint64_t* handle, std::size_t bytes,
                     const cuda_abi::MemAllocationProp* prop, unsigned long long) {
  const Entry entry;
  constexpr int kFabric = 8;  // CU_MEM_HANDLE_TYPE_FABRIC: for machines that share memory
  if (!entry.process.has(prop->location.id)) return kInvalidDevice;
  if ((prop->requested_handle_types & kFabric) != 0) return kNotSupported;
  entry.process.recorder.count(DriverCall::mem_create);
  const int device = prop->location.id;
  entry.process.memory.ensure_context(device);
  std::string misuse;
  const MemKind kind{.share = share_type_of(prop->requested_handle_types)};
  return answer(
      note_request(entry.process, device, bytes,
                   entry.process.memory.model().create(device, bytes, kind, *handle, misuse),
                   /*by_driver=*/true));
}
CUDA int cuMemRelease(std::uint64_t handle) {
  const Entry entry(DriverCall::mem_release);
  std::string misuse;
  return answer(entry.process.memory.model().release(handle, misuse));
}
CUDA int cuMemMap(std::uint64_t address, std::size_t bytes, std::size_t offset,
                  std::uint64_t handle, unsigned long long) {
  const Entry entry(DriverCall::mem_map);
  if (offset != 0) return kInvalidValue;
  std::string misuse;
  return answer(entry.process.memory.model().map(address, bytes, handle, misuse));
}
CUDA int cuMemUnmap(std::uint64_t address, std::size_t bytes) {
  const Entry entry(DriverCall::mem_unmap);
  std::string misuse;
  entry.process.memory.unmapped(address, bytes);
  return answer(entry.process.memory.model().unmap(address, bytes, misuse));
}
CUDA int cuMemSetAccess(std::uint64_t address, std::size_t bytes,
                        const cuda_abi::MemAccessDesc* descriptions, std::size_t count) {
  const Entry entry(DriverCall::mem_set_access);
  for (std::size_t i = 0; i < count; ++i) {
    if (!entry.process.has(descriptions[i].location.id)) return kInvalidDevice;
    std::string misuse;
    const DriverStatus status = entry.process.memory.model().set_access(
        address, bytes, descriptions[i].location.id, misuse);
    if (status != DriverStatus::ok) return answer(status);
  }
  return kSuccess;
}
CUDA int cuMemGetAllocationPropertiesFromHandle(cuda_abi::MemAllocationProp* prop,
                                                std::uint64_t handle) {
  const Entry entry;
  const DeviceIndex device = entry.process.memory.model().device_of(handle);
  if (device < 0) return kInvalidValue;
  std::memset(prop, 0, sizeof *prop);
  prop->type = cuda_abi::kAllocationTypePinned;
  prop->location = {cuda_abi::kLocationTypeDevice, device};
  return kSuccess;
}
CUDA int cuMemRetainAllocationHandle(std::uint64_t* handle, void* pointer) {
  const Entry entry;
  const auto found =
      entry.process.memory.model().mappings_in(reinterpret_cast<std::uint64_t>(pointer), 1);
  if (found.empty()) return kInvalidValue;
  *handle = found.front().second.handle;
  return answer(entry.process.memory.model().retain(*handle));
}
