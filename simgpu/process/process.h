// Process: everything the libraries in front share: the GPUs of this process.
//
//   libcudart.so.13  --,
//   libcuda.so.1     --+--  Process (one, in libsimgpu.so)  --  DeviceMemory, Streams, kernels
//   libcublas.so.13  --'
//
// One lock for all: a front function enters with Entry, which also lets time catch up. State is
// made at the first call, never in a constructor, for children inherit the preload. Kernels are
// registered while a program is loaded, before anyone asks for a GPU: they are kept apart
// (Registered), and the environment is read when the first GPU is asked for. A forked child has a
// copy of all of it, and a lock that nobody holds.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/driver/call.h"
#include "simgpu/process/api.h"
#include "simgpu/process/config.h"
#include "simgpu/process/device_memory.h"
#include "simgpu/process/read_watch.h"
#include "simgpu/process/recorder.h"
#include "simgpu/process/streams.h"

namespace gapless::simgpu {

class DeviceCode;

/// A fat binary that the program registered.
struct RegisteredModule {
  std::unique_ptr<DeviceCode> code;
  std::unordered_map<std::string, const void*> variables;  // by name, the host's
};

/// A kernel the program registered.
struct Kernel {
  std::string name;  // mangled
  const void* host_function = nullptr;
  RegisteredModule* module = nullptr;
};

/// What the program's code has for the device.
struct Registered {
  std::unordered_map<const void*, Kernel> kernels;                // by host function
  std::unordered_map<const void*, std::uint64_t> variable_bytes;  // by host variable
};

struct HostMemory {
  std::uint64_t bytes = 0;
  bool ours = true;    // false: the program's own, registered
  bool pinned = true;  // false: managed memory (front/cudart/managed_memory.cc)
};

class SIMGPU_API Process {
 public:
  /// Ends the process with a message where the environment asks for what there is not.
  static Process& get();

  explicit Process(Config config);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] int devices() const { return static_cast<int>(config_.gpus.size()); }
  [[nodiscard]] bool has(int device) const { return device >= 0 && device < devices(); }
  [[nodiscard]] const GpuProfile& gpu(int device) const {
    return config_.gpus[static_cast<std::size_t>(device)];
  }
  /// Its number among all that are installed, by which NVML, UUIDs and bus addresses go.
  [[nodiscard]] int installed_index(int device) const {
    return config_.installed_index[static_cast<std::size_t>(device)];
  }
  [[nodiscard]] const Config& config() const { return config_; }

  /// With the lock (Process::mutex).
  static Registered& registered();

  /// The calling thread's device.
  static int& current();
  /// The host memory an address lies in that devices reach, or nullptr.
  [[nodiscard]] const HostMemory* host_memory_of(const void* pointer) const;
  /// Host memory that the GPUs reach comes and goes, with the lock. False where there is none
  /// there.
  void keep_host(const void* pointer, const HostMemory& host);
  bool drop_host(const void* pointer);
  /// The host's own, which the GPUs reach from then on; nullptr where the host has none left. Given
  /// back with drop_host() and std::free().
  void* allocate_host(std::size_t bytes, bool pinned);

  DeviceMemory memory;
  Streams streams;
  std::map<std::uintptr_t, HostMemory> host_memory;          // by address
  std::unordered_map<const void*, DeviceAddress> variables;  // those that were asked for

  /// cuInit was called, or the runtime did so: before that the driver knows nothing.
  bool initialized = false;
  /// What a kernel that was run here failed with, a cudaError_t. As on a GPU it stays until the
  /// device is reset: launches, copies and whoever waits get it.
  int kernel_error = 0;
  /// What is told of the process, to whom it concerns.
  Recorder& recorder;
  ReadWatch reads;

  static std::recursive_mutex mutex;

 private:
  Config config_;
  std::uint64_t pinned_bytes_ = 0;
  std::uint64_t managed_bytes_ = 0;
};

/// Inside the process, with the lock.
class Entry {
 public:
  Entry() : process(Process::get()), lock_(process.mutex) { process.streams.tick(); }
  explicit Entry(DriverCall call) : Entry() { process.recorder.count(call); }
  Process& process;

 private:
  std::scoped_lock<std::recursive_mutex> lock_;
};

/// A request for memory was answered with `status`, by the runtime or by a function of the driver:
/// passes it on, and records what a report is to say.
SIMGPU_API DriverStatus note_request(Process& process, int device, std::uint64_t bytes,
                                     DriverStatus status, bool by_driver);

/// Copies between any two places, host or device. False where a device range is not memory.
SIMGPU_API bool copy_any(Process& process, void* target, const void* source, std::uint64_t bytes);

/// Something followed from what nobody knows, and not for a text alone. To be called without the
/// lock.
SIMGPU_API void note_estimate(Estimate what);

/// How long a kernel keeps its stream busy: nothing, but for torch.cuda._sleep.
SIMGPU_API std::uint64_t duration_ns(const Kernel& kernel, void** arguments);

}  // namespace gapless::simgpu

/// How often the program made each of those calls, by DriverCall (of the others, none are counted).
extern "C" SIMGPU_API void simgpu_calls(std::uint64_t* counts);
