#include "torch_plugin/pluggable/pluggable.h"

#include <cstdio>
#include <stdexcept>

#include "allocator/c_api.h"
#include "allocator/device/options.h"
#include "allocator/report/oom_dump.h"
#include "allocator/report/out_of_memory.h"
#include "torch_plugin/pluggable/torch_error.h"

namespace gapless::torch_plugin {
namespace {

// The process's allocator. Never destroyed: tensors outlive everything.
gapless_allocator& process_allocator() {
  static gapless_allocator* const made = [] {
    gapless_allocator* allocator = nullptr;
    if (gapless_create(nullptr, &allocator) != GAPLESS_OK) {
      throw std::runtime_error(std::string("gapless: ") + gapless_last_error());
    }
    return allocator;
  }();
  return *made;
}

DeviceAllocator& device_of(int device) {
  DeviceAllocator* const found = allocator_of(process_allocator()).device(device);
  if (found == nullptr) {
    throw std::runtime_error("gapless: there is no device " + std::to_string(device));
  }
  return *found;
}

DeviceAddress address_of(const void* memory) { return reinterpret_cast<DeviceAddress>(memory); }

[[noreturn]] void fail(DeviceAllocator& device, int index, std::size_t bytes, Status status) {
  if (status != Status::out_of_memory) {
    throw std::runtime_error("gapless: " + device.last_failure());
  }
  MemInfo info;
  (void)driver_of(process_allocator()).mem_info(index, info);
  const HeapReport heap = device.report();
  const OutOfMemoryReport why = explain(heap, device.last_failed_request(), info.free_bytes);
  std::string text = "CUDA out of memory. Tried to allocate " + std::to_string(bytes) +
                     " bytes.\ngapless: " + to_text(why);
  if (const std::string folder = options_from_environment().dump_on_oom; !folder.empty()) {
    const std::string where = write_oom_dump(folder, heap, why, text);
    if (!where.empty()) text += "\n  " + where;
  }
  throw_out_of_memory(text);
}

}  // namespace
}  // namespace gapless::torch_plugin

using namespace gapless;
using namespace gapless::torch_plugin;

void* gapless_torch_alloc(size_t bytes, int device, void* stream) {
  DeviceAllocator& allocator = device_of(device);
  DeviceAddress address = 0;
  const Status status = allocator.alloc(bytes, reinterpret_cast<StreamHandle>(stream), address);
  if (status != Status::ok) fail(allocator, device, bytes, status);
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// PyTorch calls this from destructors, where an exception would end the process.
void gapless_torch_free(void* memory, size_t /*bytes*/, int /*device*/, void* /*stream*/) {
  try {
    if (gapless_free(&process_allocator(), memory) == GAPLESS_OK) return;
    std::fprintf(stderr, "gapless: gapless_torch_free(%p): %s\n", memory, gapless_last_error());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gapless: gapless_torch_free(%p): %s\n", memory, error.what());
  }
}

void gapless_torch_record_stream(void* memory, void* stream) {
  (void)allocator_of(process_allocator())
      .record_stream(address_of(memory), reinterpret_cast<StreamHandle>(stream));
}

void gapless_torch_empty_cache(void) {
  const Allocator& allocator = allocator_of(process_allocator());
  for (DeviceIndex device = 0; device < allocator.devices(); ++device) {
    (void)allocator.device(device)->trim();
  }
}

void gapless_torch_set_memory_fraction(double fraction, int device) {
  if (!(fraction >= 0 && fraction <= 1)) {
    throw std::runtime_error("gapless: a memory fraction is between 0 and 1");
  }
  DeviceAllocator& allocator = device_of(device);
  const auto bytes = static_cast<double>(allocator.total_bytes()) * fraction;
  allocator.set_limit_bytes(fraction < 1 ? static_cast<std::uint64_t>(bytes) : UINT64_MAX);
}

void* gapless_torch_base_allocation(void* memory, size_t* bytes) {
  const Allocator& allocator = allocator_of(process_allocator());
  for (DeviceIndex device = 0; device < allocator.devices(); ++device) {
    const auto block = allocator.device(device)->find_block(address_of(memory));
    if (!block) continue;
    if (bytes != nullptr) *bytes = block->bytes;
    return memory;
  }
  throw std::runtime_error("gapless: no block begins there");
}
