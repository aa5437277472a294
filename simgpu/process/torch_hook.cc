// What a tensor held ends with the tensor.
//
// PyTorch's allocators keep memory and hand it out again; the next tensor there would begin with
// what the host once copied to the one before. They tell the profiler of every allocation and free
// through one function of libc10, and this one stands in front of it (the library is preloaded).
#include <cstdint>

#include <dlfcn.h>

#include "simgpu/process/process.h"

namespace {

using gapless::simgpu::DeviceMemory;

// c10::Device: a kind of device and its number.
struct C10Device {
  std::int8_t type;
  std::int8_t index;
};
constexpr std::int8_t kCuda = 1;

using Report = void (*)(void*, std::int64_t, std::size_t, std::size_t, C10Device);

// libc10's own. Python loads libc10 apart from what is global, so RTLD_NEXT would not find it.
Report next_report() {
  static const Report found = [] {
    void* const library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    const char* const name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
    return reinterpret_cast<Report>(library == nullptr ? nullptr : dlsym(library, name));
  }();
  return found;
}

}  // namespace

extern "C" SIMGPU_API void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(
    void* pointer, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
    C10Device device) {
  if (bytes < 0 && device.type == kCuda && DeviceMemory::ever_kept()) {
    const gapless::simgpu::Entry entry;
    entry.process.memory.forget(reinterpret_cast<std::uint64_t>(pointer),
                                static_cast<std::uint64_t>(-bytes));
  }
  if (const Report next = next_report(); next != nullptr) {
    next(pointer, bytes, allocated, reserved, device);
  }
}
