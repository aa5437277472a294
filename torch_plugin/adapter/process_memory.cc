#include "torch_plugin/adapter/process_memory.h"

#include <array>
#include <cstdio>
#include <vector>

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

namespace gapless::torch_plugin {
namespace {

// nvmlProcessInfo_t (nvml.h, since version 3 of its functions).
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

// NVML's functions, found at run time: programs need no management library to be linked with.
struct Nvml {
  int (*init)() = nullptr;
  int (*handle_by_bus)(const char*, void**) = nullptr;
  int (*processes)(void*, unsigned*, NvmlProcess*) = nullptr;

  [[nodiscard]] bool load() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(init, "nvmlInit_v2") && find(handle_by_bus, "nvmlDeviceGetHandleByPciBusId_v2") &&
           find(processes, "nvmlDeviceGetComputeRunningProcesses_v3") && init() == 0;
  }
};

bool running_processes(int device, std::vector<NvmlProcess>& found) {
  static Nvml nvml;
  static const bool loaded = nvml.load();
  std::array<char, 64> bus{};
  void* handle = nullptr;
  if (!loaded ||
      cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device) != cudaSuccess ||
      nvml.handle_by_bus(bus.data(), &handle) != 0) {
    return false;
  }
  auto count = static_cast<unsigned>(found.size());
  constexpr int kTooFew = 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  int error = kTooFew;
  for (unsigned room = 16; error == kTooFew && room < (1U << 16); room *= 4) {
    found.resize(room);
    count = room;
    error = nvml.processes(handle, &count, found.data());
  }
  found.resize(error == 0 ? count : 0);
  return error == 0;
}

}  // namespace

std::string torch_size(std::uint64_t bytes) {
  std::array<char, 64> text{};
  const auto write = [&](double unit, const char* name) {
    std::snprintf(text.data(), text.size(), "%.2f %s", static_cast<double>(bytes) / unit, name);
  };
  if (bytes <= 1024) {
    std::snprintf(text.data(), text.size(), "%llu bytes", static_cast<unsigned long long>(bytes));
  } else if (bytes <= 1048576) {
    write(1024.0, "KiB");
  } else if (bytes <= 1073741824) {
    write(1048576.0, "MiB");
  } else {
    write(1073741824.0, "GiB");
  }
  return text.data();
}

std::string processes_text(int device, std::uint64_t used_bytes) {
  std::vector<NvmlProcess> processes;
  if (!running_processes(device, processes)) {
    return "Including non-PyTorch memory, this process has " + torch_size(used_bytes) +
           " memory in use. ";
  }
  std::string text;
  for (const NvmlProcess& process : processes) {
    const bool ours = process.pid == static_cast<unsigned>(getpid());
    text += ours ? "Including non-PyTorch memory, this process has "
                 : "Process " + std::to_string(process.pid) + " has ";
    text += torch_size(process.used_bytes) + " memory in use. ";
  }
  return text;
}

}  // namespace gapless::torch_plugin
