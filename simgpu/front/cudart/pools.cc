// cudaMallocAsync and its pools: a model. NVIDIA's allocator is not public; here a request takes
// whole 2 MiB pages (or part of a slab) at once and gives them back at once when it is freed.
#include "simgpu/front/cudart/common.h"

using namespace gapless;
using namespace gapless::simgpu;

CUDART int cudaMalloc(void** pointer, std::size_t bytes);
CUDART int cudaFree(void* pointer);

namespace {

struct Pool {
  int device = 0;
  std::uint64_t release_threshold = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t most_reserved_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t most_used_bytes = 0;
};

// What came from a pool: its pool and size, by address.
std::map<void*, std::pair<Pool*, std::size_t>>& taken() {
  static std::map<void*, std::pair<Pool*, std::size_t>> all;
  return all;
}

int take(void** pointer, std::size_t bytes, Pool& pool) {
  const Entry entry;
  const std::uint64_t before = entry.process.memory.free_bytes(pool.device);
  const int error = cudaMalloc(pointer, bytes);
  if (error != abi::success || bytes == 0) return error;
  pool.reserved_bytes += before - entry.process.memory.free_bytes(pool.device);
  pool.used_bytes += bytes;
  pool.most_reserved_bytes = std::max(pool.most_reserved_bytes, pool.reserved_bytes);
  pool.most_used_bytes = std::max(pool.most_used_bytes, pool.used_bytes);
  taken()[*pointer] = {&pool, bytes};
  return error;
}

Pool* default_pool(int device) {
  static std::map<int, Pool> pools;
  const Entry entry;
  Pool& pool = pools[device];
  pool.device = device;
  return &pool;
}

}  // namespace

CUDART int cudaDeviceGetDefaultMemPool(void** pool, int device) {
  *pool = default_pool(device);
  return abi::success;
}
CUDART int cudaDeviceGetMemPool(void** pool, int device) {
  *pool = default_pool(device);
  return abi::success;
}
CUDART int cudaDeviceSetMemPool(int, void*) { return abi::success; }
CUDART int cudaMemPoolCreate(void** pool, const void*) {
  *pool = new Pool{Process::current()};
  return abi::success;
}
CUDART int cudaMemPoolDestroy(void* pool) {
  delete static_cast<Pool*>(pool);
  return abi::success;
}
CUDART int cudaMemPoolSetAttribute(void* pool, int attribute, const void* value) {
  const Entry entry;
  auto* known = static_cast<Pool*>(pool);
  if (attribute == 4) known->release_threshold = *static_cast<const std::uint64_t*>(value);
  if (attribute == 6) known->most_reserved_bytes = known->reserved_bytes;  // may only be reset
  if (attribute == 8) known->most_used_bytes = known->used_bytes;
  return abi::success;
}
CUDART int cudaMemPoolGetAttribute(void* handle, int attribute, void* value) {
  const Entry entry;
  const auto* pool = static_cast<const Pool*>(handle);
  const auto give = [value](std::uint64_t bytes) {
    *static_cast<std::uint64_t*>(value) = bytes;
    return abi::success;
  };
  switch (attribute) {
    case 4:
      return give(pool->release_threshold);
    case 5:
      return give(pool->reserved_bytes);
    case 6:
      return give(pool->most_reserved_bytes);
    case 7:
      return give(pool->used_bytes);
    case 8:
      return give(pool->most_used_bytes);
    default:
      *static_cast<int*>(value) = 1;
      return abi::success;  // ways of reuse: all on
  }
}
CUDART int cudaMemPoolSetAccess(void*, const void*, std::size_t) { return abi::success; }
CUDART int cudaMemPoolTrimTo(void*, std::size_t) { return abi::success; }
CUDART int cudaMallocAsync(void** pointer, std::size_t bytes, void*) {
  return take(pointer, bytes, *default_pool(Process::current()));
}
CUDART int cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, void* pool, void*) {
  return take(pointer, bytes, *static_cast<Pool*>(pool));
}
CUDART int cudaFreeAsync(void* pointer, void*) {
  const Entry entry;
  const auto found = taken().find(pointer);
  if (found == taken().end()) return cudaFree(pointer);
  auto [pool, bytes] = found->second;
  taken().erase(found);
  const std::uint64_t before = entry.process.memory.free_bytes(pool->device);
  const int error = cudaFree(pointer);
  pool->reserved_bytes -= entry.process.memory.free_bytes(pool->device) - before;
  pool->used_bytes -= bytes;
  return error;
}
