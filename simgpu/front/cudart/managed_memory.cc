// Managed memory: the host's and each device's, its pages where they are used. A device that has no
// room for them, or needs it for a request, sends them back to the host, so they are no request's
// loss: here they stay on the host, and are told of (ProcessRecord::peak_managed_bytes).
//
//   cudaMallocManaged(1 GiB)      bitsandbytes' paged optimizers: their states
//   cudaMemPrefetchAsync(GPU 0)   before each step; nothing moves
#include <cstdlib>

#include "allocator/base/bytes.h"
#include "simgpu/front/cudart/common.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

struct Location {  // cudaMemLocation
  int type;
  int id;
};

// Whether all of the range is in one piece of managed memory.
bool is_managed(const Process& process, const void* pointer, std::size_t bytes) {
  if (bytes == 0) return false;
  const auto* const first = static_cast<const char*>(pointer);
  const HostMemory* const host = process.host_memory_of(first);
  return host != nullptr && !host->pinned && process.host_memory_of(first + bytes - 1) == host;
}

}  // namespace

CUDART int cudaMallocManaged(void** pointer, std::size_t bytes, unsigned) {
  const Entry entry;
  if (pointer == nullptr || bytes == 0) return answer(abi::invalid_value);
  *pointer = entry.process.allocate_host(bytes, /*pinned=*/false);
  return *pointer != nullptr ? abi::success : answer(abi::memory_allocation);
}
CUDART int cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, Location, unsigned,
                                void* stream) {
  const Entry entry;
  if (stream_of(entry.process, stream) == nullptr) return answer(abi::invalid_resource_handle);
  return is_managed(entry.process, pointer, bytes) ? abi::success : answer(abi::invalid_value);
}
CUDART int cudaMemAdvise(const void* pointer, std::size_t bytes, int, Location) {
  const Entry entry;
  return is_managed(entry.process, pointer, bytes) ? abi::success : answer(abi::invalid_value);
}
