// cudaMallocAsync and its pools: a model. NVIDIA's allocator is not public; here a request takes
// whole 2 MiB pages (or part of a slab) at once and gives them back at once when it is freed.
// During capture it becomes memory of the graph.
#include <set>

#include "simgpu/front/cudart/common.h"

using namespace gapless;
using namespace gapless::simgpu;

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
  static auto& all = *new std::map<void*, std::pair<Pool*, std::size_t>>;
  return all;
}

// What belongs to a graph: freed outside of its capture, it stays for the next launch.
std::set<void*>& owned_by_graphs() {
  static auto& all = *new std::set<void*>;
  return all;
}

int take(void** pointer, std::size_t bytes, Pool& pool) {
  const Entry entry(DriverCall::mem_alloc);
  *pointer = nullptr;
  if (bytes == 0) return abi::success;
  auto& memory = entry.process.memory;
  memory.ensure_context(pool.device);
  const std::uint64_t before = memory.free_bytes(pool.device);
  DeviceAddress address = 0;
  const DriverStatus status = memory.alloc(pool.device, bytes, address);
  auto& recorder = entry.process.recorder;
  if (status == DriverStatus::out_of_memory) {
    // For good: of pools nobody asks twice, PyTorch's allocator neither.
    const std::uint64_t used = memory.used_bytes(pool.device);
    recorder.ran_out({pool.device, bytes, used, used});
  }
  if (status != DriverStatus::ok) return answer(status);
  recorder.served();
  *pointer = reinterpret_cast<void*>(address);
  pool.reserved_bytes += before - memory.free_bytes(pool.device);
  pool.used_bytes += bytes;
  pool.most_reserved_bytes = std::max(pool.most_reserved_bytes, pool.reserved_bytes);
  pool.most_used_bytes = std::max(pool.most_used_bytes, pool.used_bytes);
  taken()[*pointer] = {&pool, bytes};
  return abi::success;
}

int give_back(void* pointer) {
  const Entry entry;
  const auto found = taken().find(pointer);
  if (found == taken().end()) return cudaFree(pointer);
  const Entry freed(DriverCall::mem_free);
  auto [pool, bytes] = found->second;
  taken().erase(found);
  const std::uint64_t before = entry.process.memory.free_bytes(pool->device);
  const DriverStatus status = entry.process.memory.free(reinterpret_cast<DeviceAddress>(pointer));
  pool->reserved_bytes -= entry.process.memory.free_bytes(pool->device) - before;
  pool->used_bytes -= bytes;
  return answer(status);
}

// During capture: a node of the graph, and memory of the graph's own.
int take_for_graph(void** pointer, std::size_t bytes, Pool& pool, Stream& stream) {
  const Entry entry;
  auto& memory = stream.capture->graph->memory;
  if (!memory) {
    memory = std::make_shared<GraphMemory>();
    memory->give_back = [](void* each) {
      owned_by_graphs().erase(each);
      (void)give_back(each);
    };
  }
  if (const auto fits = memory->released.lower_bound(bytes); fits != memory->released.end()) {
    *pointer = fits->second;
    memory->released.erase(fits);
  } else {
    const int error = take(pointer, bytes, pool);
    if (error != abi::success) return error;
    memory->bytes[*pointer] = bytes;
    owned_by_graphs().insert(*pointer);
  }
  entry.process.streams.submit(stream, NodeKind::allocation, {});
  return abi::success;
}

int take_on_stream(void** pointer, std::size_t bytes, Pool& pool, void* handle) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, handle);
  if (stream == nullptr) return answer(abi::invalid_resource_handle);
  if (stream->capture && bytes != 0) return take_for_graph(pointer, bytes, pool, *stream);
  return take(pointer, bytes, pool);
}

Pool* default_pool(int device) {
  static auto& pools = *new std::map<int, Pool>;
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
CUDART int cudaMallocAsync(void** pointer, std::size_t bytes, void* stream) {
  return take_on_stream(pointer, bytes, *default_pool(Process::current()), stream);
}
CUDART int cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, void* pool, void* stream) {
  return take_on_stream(pointer, bytes, *static_cast<Pool*>(pool), stream);
}
CUDART int cudaFreeAsync(void* pointer, void* handle) {
  const Entry entry;
  Stream* stream = stream_of(entry.process, handle);
  if (stream != nullptr && stream->capture && stream->capture->graph->memory) {
    GraphMemory& memory = *stream->capture->graph->memory;
    if (const auto own = memory.bytes.find(pointer); own != memory.bytes.end()) {
      memory.released.emplace(own->second, pointer);
      entry.process.streams.submit(*stream, NodeKind::release, {});
      return abi::success;
    }
  }
  return owned_by_graphs().contains(pointer) ? abi::success : give_back(pointer);
}
