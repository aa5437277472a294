// What PyTorch's allocators tell of themselves.
//
// They report every allocation and free, and every request that failed for good, to the profiler
// through two functions of libc10; those here stand in front of them (the library is preloaded).
//
// - What a tensor held ends with the tensor. Its memory is kept and handed out again; the next
//   tensor there would begin with what the host once copied to the one before.
// - Peaks and failed requests are recorded, whatever language the program is written in.
// - Where a trace is kept (memory_trace.h), so is every allocation and free. Whose it is, is asked
//   before: while torch keeps its own history, it gathers the stack of each request in a function
//   that a third one here stands in front of, at a time when no lock of the allocator's is held. In
//   a program without Python the stack itself is kept.
#include <cstdint>
#include <utility>

#include <dlfcn.h>

#include "simgpu/process/memory_trace.h"
#include "simgpu/process/native_sites.h"
#include "simgpu/process/process.h"
#include "simgpu/process/python.h"
#include "simgpu/process/python_callback.h"

namespace {

using gapless::simgpu::DeviceMemory;
using gapless::simgpu::MemoryEvent;
using gapless::simgpu::MemoryTrace;

// c10::Device: a kind of device and its number.
struct C10Device {
  std::int8_t type;
  std::int8_t index;
};
constexpr std::int8_t kCuda = 1;

using Report = void (*)(void*, std::int64_t, std::size_t, std::size_t, C10Device);
using ReportOutOfMemory = void (*)(std::int64_t, std::size_t, std::size_t, C10Device);

// torch's own. Python loads its libraries apart from what is global, so RTLD_NEXT would not find
// it.
template <class Function>
Function of_torch(const char* library_name, const char* name) {
  void* const library = dlopen(library_name, RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Function>(library == nullptr ? nullptr : dlsym(library, name));
}

// What a std::shared_ptr is to a caller: two words, returned in memory.
struct SharedPointer {
  void* object = nullptr;
  void* count = nullptr;
  SharedPointer() = default;
  SharedPointer(const SharedPointer& other) : object(other.object), count(other.count) {}
  SharedPointer& operator=(const SharedPointer&) = delete;
  ~SharedPointer() {}  // NOLINT(modernize-use-equals-default): so that it is returned in memory
};

using Gather = SharedPointer (*)(bool, bool, bool);

gapless::simgpu::PythonCallback site_callback;

// From where the calling thread asks, as Python said before; a program without one has the stack.
std::uint32_t site_here() {
  if (const std::uint32_t told = std::exchange(MemoryTrace::site(), 0); told != 0) return told;
  static const bool has_python = gapless::simgpu::Python::is_there();
  return has_python ? 0 : gapless::simgpu::NativeSites::get().here();
}

MemoryEvent event_of(MemoryEvent::Kind kind, int device, std::uint64_t bytes,
                     std::uint64_t reserved) {
  MemoryEvent event;
  event.kind = kind;
  event.device = static_cast<std::uint8_t>(device);
  event.bytes = bytes;
  event.reserved_bytes = reserved;
  return event;
}

void trace_usage(void* pointer, std::int64_t bytes, std::size_t reserved, int device) {
  MemoryEvent event =
      event_of(bytes > 0 ? MemoryEvent::Kind::alloc : MemoryEvent::Kind::free, device,
               static_cast<std::uint64_t>(bytes > 0 ? bytes : -bytes), reserved);
  event.address = reinterpret_cast<std::uint64_t>(pointer);
  if (bytes > 0) {
    event.holder = MemoryTrace::scope();
    event.site = site_here();
  }
  MemoryTrace::get().add(event);
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
  } else if (bytes < 0 && device.type == kCuda) {
    gapless::simgpu::Recorder::get().freed(device.index, allocated);
  }
  if (bytes != 0 && device.type == kCuda && MemoryTrace::wanted()) {
    trace_usage(pointer, bytes, reserved, device.index);
  }
  static const auto next =
      of_torch<Report>("libc10.so", "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  if (next != nullptr) next(pointer, bytes, allocated, reserved, device);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" SIMGPU_API void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(
    std::int64_t bytes, std::size_t allocated, std::size_t reserved, C10Device device) {
  if (device.type == kCuda) {
    gapless::simgpu::Recorder::get().ran_out(
        {device.index, static_cast<std::uint64_t>(bytes), allocated, reserved});
    if (MemoryTrace::wanted()) {
      MemoryEvent event = event_of(MemoryEvent::Kind::out_of_memory, device.index,
                                   static_cast<std::uint64_t>(bytes), reserved);
      event.site = site_here();
      MemoryTrace::get().add(event);
    }
  }
  static const auto next = of_torch<ReportOutOfMemory>(
      "libc10.so", "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
  if (next != nullptr) next(bytes, allocated, reserved, device);
}

// torch::CapturedTraceback::gather(python, script, cpp), which returns a std::shared_ptr.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" SIMGPU_API SharedPointer _ZN5torch17CapturedTraceback6gatherEbbb(bool python,
                                                                            bool script, bool cpp) {
  if (python && site_callback.is_set()) {
    MemoryTrace::site() = static_cast<std::uint32_t>(site_callback());
  }
  static const auto next =
      of_torch<Gather>("libtorch_cpu.so", "_ZN5torch17CapturedTraceback6gatherEbbb");
  return next == nullptr ? SharedPointer() : next(python, script, cpp);
}

extern "C" void simgpu_watch_sites(void* site) { site_callback.set(site); }
