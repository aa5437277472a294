#include "simgpu/process/process.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

#include <pthread.h>

#include "allocator/base/terminal_text.h"
#include "simgpu/process/end_hook.h"
#include "simgpu/process/python_watch.h"
#include "simgpu/process/stop_hook.h"
#include "simgpu/process/values.h"

namespace gapless::simgpu {
namespace {

Config read_config() {
  try {
    return config_from_environment();
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "simgpu: %s\n", terminal_text(error.what()).c_str());
    std::exit(2);
  }
}

// A child is forked when no other thread is in here, so that it finds everything whole; unless one
// stays too long: it may wait for what the forking thread holds.
bool locked_for_fork = false;

void before_fork() {
  constexpr int kTries = 1000;
  locked_for_fork = false;
  for (int i = 0; i < kTries && !locked_for_fork; ++i) {
    locked_for_fork = Process::mutex.try_lock();
    if (!locked_for_fork) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void after_fork_in_parent() {
  if (locked_for_fork) Process::mutex.unlock();
}

// The thread that has the lock has another number in the child: it could not unlock it.
void after_fork_in_child() { new (&Process::mutex) std::recursive_mutex; }

}  // namespace

Process::Process(Config config)
    : memory(config,
             [this](DeviceIndex device, std::uint64_t bytes) {
               recorder.used(device, installed_index(device), gpu(device), bytes);
             }),
      streams(static_cast<int>(config.gpus.size())),
      recorder(Recorder::get()),
      config_(std::move(config)) {}

Process& Process::get() {
  // Never destroyed: other libraries' destructors still call.
  static auto* process = [] {
    auto* made = new Process(read_config());
    record_exit();
    made->recorder.when_kept(&hear_of_stop);
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return made;
  }();
  return *process;
}

std::recursive_mutex Process::mutex;

Registered& Process::registered() {
  static auto* registered = new Registered;  // as long as the process
  return *registered;
}

int& Process::current() {
  // Asked for with every allocation. The library is preloaded, so there is room among the threads'
  // first variables, which need no call.
  [[gnu::tls_model("initial-exec")]] thread_local int device = 0;
  return device;
}

const HostMemory* Process::host_memory_of(const void* pointer) const {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  auto host = host_memory.upper_bound(at);
  if (host == host_memory.begin()) return nullptr;
  --host;
  return at < host->first + host->second.bytes ? &host->second : nullptr;
}

void Process::keep_host(const void* pointer, const HostMemory& host) {
  host_memory[reinterpret_cast<std::uintptr_t>(pointer)] = host;
  (host.pinned ? pinned_bytes_ : managed_bytes_) += host.bytes;
  recorder.host_memory(pinned_bytes_, managed_bytes_);
}

bool Process::drop_host(const void* pointer) {
  const auto found = host_memory.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == host_memory.end()) return false;
  (found->second.pinned ? pinned_bytes_ : managed_bytes_) -= found->second.bytes;
  host_memory.erase(found);
  return true;
}

void* Process::allocate_host(std::size_t bytes, bool pinned) {
  constexpr std::size_t kPage = 4096;
  void* const pointer = std::aligned_alloc(kPage, align_up(bytes, kPage));
  if (pointer != nullptr) keep_host(pointer, {bytes, /*ours=*/true, pinned});
  return pointer;
}

DriverStatus note_request(Process& process, int device, std::uint64_t bytes, DriverStatus status,
                          bool by_driver) {
  if (status == DriverStatus::ok) process.recorder.served();
  if (status == DriverStatus::out_of_memory) {
    process.recorder.refused(device, bytes, process.memory.used_bytes(device), by_driver);
  }
  return status;
}

bool copy_any(Process& process, void* target, const void* source, std::uint64_t bytes) {
  if (bytes == 0) return true;
  const auto to = reinterpret_cast<DeviceAddress>(target);
  const auto from = reinterpret_cast<DeviceAddress>(source);
  const bool to_device = process.memory.find(to).has_value();
  const bool from_device = process.memory.find(from).has_value();
  if (to_device && from_device) return process.memory.copy(to, from, bytes);
  if (to_device) return process.memory.write(to, source, bytes);
  if (from_device) return process.memory.read(target, from, bytes);
  std::memmove(target, source, bytes);
  return true;
}

void note_estimate(Estimate what) {
  if (simgpu_operator()->texts != 0) return;
  bool first = false;
  {
    const Entry entry;
    first = entry.process.recorder.estimated(what);
  }
  if (first) tell_python_of_estimate(static_cast<int>(what));
}

std::uint64_t duration_ns(const Kernel& kernel, void** arguments) {
  // at::cuda::sleep's kernel spins for so many cycles; say 1 GHz.
  if (arguments == nullptr || kernel.name.find("spin_kernel") == std::string::npos) return 0;
  std::int64_t cycles = 0;
  std::memcpy(&cycles, arguments[0], sizeof cycles);
  return cycles < 0 ? 0 : static_cast<std::uint64_t>(cycles);
}

}  // namespace gapless::simgpu

extern "C" void simgpu_calls(std::uint64_t* counts) {
  const gapless::simgpu::Entry entry;
  const auto& calls = entry.process.recorder.record().calls;
  std::copy(calls.begin(), calls.end(), counts);
}

// Not CUDA's: for whoever reads memory, and must not take what nobody knows for zeros
// (CudaDriver::knows_contents).
extern "C" int simgpu_knows(std::uint64_t address, std::size_t bytes) {
  const gapless::simgpu::Entry entry;
  return entry.process.memory.knows(address, bytes) ? 1 : 0;
}
