// What PyTorch's allocators tell of themselves.
//
// They report every allocation and free, and every request that failed for good, to the profiler
// through two functions of libc10; those here stand in front of them (the library is preloaded).
//
// - What a tensor held ends with the tensor. Its memory is kept and handed out again; the next
//   tensor there would begin with what the host once copied to the one before.
// - Peaks and failed requests are recorded, whatever language the program is written in.
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
using ReportOutOfMemory = void (*)(std::int64_t, std::size_t, std::size_t, C10Device);

// libc10's own. Python loads libc10 apart from what is global, so RTLD_NEXT would not find it.
template <class Function>
Function of_libc10(const char* name) {
  void* const library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Function>(library == nullptr ? nullptr : dlsym(library, name));
}

}  // namespace

// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" SIMGPU_API void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(
    void* pointer, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
    C10Device device) {
  if (bytes < 0 && device.type == kCuda && DeviceMemory::ever_kept()) {
    const gapless::simgpu::Entry entry;
    entry.process.memory.forget(reinterpret_cast<std::uint64_t>(pointer),
                                static_cast<std::uint64_t>(-bytes));
  }
  if (bytes > 0 && device.type == kCuda) {
    gapless::simgpu::Recorder::get().allocated(device.index, allocated, reserved);
  }
  static const auto next =
      of_libc10<Report>("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  if (next != nullptr) next(pointer, bytes, allocated, reserved, device);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" SIMGPU_API void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(
    std::int64_t bytes, std::size_t allocated, std::size_t reserved, C10Device device) {
  if (device.type == kCuda) {
    gapless::simgpu::Recorder::get().ran_out(
        {device.index, static_cast<std::uint64_t>(bytes), allocated, reserved});
  }
  static const auto next =
      of_libc10<ReportOutOfMemory>("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
  if (next != nullptr) next(bytes, allocated, reserved, device);
}
