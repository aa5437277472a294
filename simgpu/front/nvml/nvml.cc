// libnvidia-ml.so.1: what nvidia-smi knows, as far as PyTorch and monitors ask.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sched.h>
#include <unistd.h>

#include "simgpu/process/process.h"

#define NVML extern "C" __attribute__((visibility("default")))

using namespace gapless::simgpu;

namespace {

enum : int {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7
};

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct MemoryV2 {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

struct RunningProcess {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct Utilization {
  unsigned gpu;
  unsigned memory;
};

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

void* handle_of(int device) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(device) + 1);
}
int device_of(const void* handle) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)) - 1;
}

// NVML knows every GPU, whatever CUDA_VISIBLE_DEVICES hides.
bool is_installed(const Process& process, int index) {
  return index >= 0 && static_cast<std::size_t>(index) < process.config().installed.size();
}

}  // namespace

NVML int nvmlInit_v2() { return kSuccess; }
NVML int nvmlInit() { return kSuccess; }
NVML int nvmlInitWithFlags(unsigned) { return kSuccess; }
NVML int nvmlShutdown() { return kSuccess; }
NVML const char* nvmlErrorString(int error) {
  return error == kSuccess ? "Success" : error == kNotSupported ? "Not Supported" : "Not Found";
}
NVML int nvmlSystemGetCudaDriverVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
NVML int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}
NVML int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.0 (simulated)");
  return kSuccess;
}
NVML int nvmlDeviceGetCount_v2(unsigned* count) {
  const Entry entry;
  *count = static_cast<unsigned>(entry.process.config().installed.size());
  return kSuccess;
}
NVML int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }
NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  const Entry entry;
  if (!is_installed(entry.process, static_cast<int>(index))) return kInvalidArgument;
  *handle = handle_of(static_cast<int>(index));
  return kSuccess;
}
NVML int nvmlDeviceGetHandleByIndex(unsigned index, void** handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
NVML int nvmlDeviceGetHandleByPciBusId_v2(const char* text, void** handle) {
  unsigned domain = 0;
  unsigned bus = 0;
  const Entry entry;
  if (std::sscanf(text, "%x:%x", &domain, &bus) != 2 ||
      !is_installed(entry.process, static_cast<int>(bus) - 1)) {
    return kNotFound;
  }
  *handle = handle_of(static_cast<int>(bus) - 1);
  return kSuccess;
}
NVML int nvmlDeviceGetHandleByUUID(const char* text, void** handle) {
  const Entry entry;
  unsigned index = 0;
  if (std::sscanf(text, "GPU-6761706c-6573-732d-7369-%x", &index) != 1 ||
      !is_installed(entry.process, static_cast<int>(index))) {
    return kNotFound;
  }
  *handle = handle_of(static_cast<int>(index));
  return kSuccess;
}
NVML int nvmlDeviceGetIndex(const void* handle, unsigned* index) {
  *index = static_cast<unsigned>(device_of(handle));
  return kSuccess;
}
NVML int nvmlDeviceGetName(const void* handle, char* name, unsigned length) {
  const Entry entry;
  const int index = device_of(handle);
  if (!is_installed(entry.process, index)) return kInvalidArgument;
  const auto& gpu = entry.process.config().installed[static_cast<std::size_t>(index)];
  std::snprintf(name, length, "%s", gpu.name.c_str());
  return kSuccess;
}
NVML int nvmlDeviceGetUUID(const void* handle, char* text, unsigned length) {
  std::snprintf(text, length, "GPU-6761706c-6573-732d-7369-%012x", device_of(handle));
  return kSuccess;
}
NVML int nvmlDeviceGetPciInfo_v3(const void* handle, PciInfo* info) {
  std::memset(info, 0, sizeof *info);
  info->bus = static_cast<unsigned>(device_of(handle)) + 1;
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  std::snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
  return kSuccess;
}
NVML int nvmlDeviceGetMemoryInfo(const void* handle, Memory* memory) {
  const Entry entry;
  const int index = device_of(handle);
  if (!is_installed(entry.process, index)) return kInvalidArgument;
  memory->total = entry.process.config().installed[static_cast<std::size_t>(index)].total_bytes;
  memory->free = memory->total;  // of one that this process does not see, nothing is known
  const auto& seen = entry.process.config().installed_index;
  if (const auto found = std::find(seen.begin(), seen.end(), index); found != seen.end()) {
    memory->free = entry.process.memory.free_bytes(static_cast<int>(found - seen.begin()));
  }
  memory->used = memory->total - memory->free;
  return kSuccess;
}
NVML int nvmlDeviceGetMemoryInfo_v2(const void* handle, MemoryV2* memory) {
  Memory plain{};
  const int error = nvmlDeviceGetMemoryInfo(handle, &plain);
  memory->total = plain.total;
  memory->reserved = 0;
  memory->free = plain.free;
  memory->used = plain.used;
  return error;
}
// Of the processes that hold memory a driver in a container knows those of the container; here it
// is this one.
NVML int nvmlDeviceGetComputeRunningProcesses_v3(const void* handle, unsigned* count,
                                                 RunningProcess* processes) {
  const Entry entry;
  const auto& seen = entry.process.config().installed_index;
  const auto found = std::find(seen.begin(), seen.end(), device_of(handle));
  const std::uint64_t used =
      found == seen.end() ? 0
                          : entry.process.memory.used_bytes(static_cast<int>(found - seen.begin()));
  const unsigned room = *count;
  *count = used == 0 ? 0 : 1;
  if (room < *count) return kInsufficientSize;
  constexpr unsigned kNoInstance = ~0U;
  if (used != 0) {
    processes[0] = {static_cast<unsigned>(getpid()), used, kNoInstance, kNoInstance};
  }
  return kSuccess;
}
// The first version's entries end before the instances. This is the one PyTorch asks.
NVML int nvmlDeviceGetComputeRunningProcesses(const void* handle, unsigned* count,
                                              void* processes) {
  RunningProcess own{};
  const unsigned room = *count;
  *count = 1;
  if (const int error = nvmlDeviceGetComputeRunningProcesses_v3(handle, count, &own)) return error;
  if (room < *count) return kInsufficientSize;
  if (*count != 0) std::memcpy(processes, &own, offsetof(RunningProcess, gpu_instance));
  return kSuccess;
}
NVML int nvmlDeviceGetComputeRunningProcesses_v2(const void* handle, unsigned* count,
                                                 RunningProcess* processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, processes);
}

NVML int nvmlDeviceGetGraphicsRunningProcesses_v3(const void*, unsigned* count, RunningProcess*) {
  *count = 0;
  return kSuccess;
}

// --- what monitors log. A simulated GPU takes no time, so it is idle, takes no power, and is as
// warm as the room.
NVML int nvmlDeviceGetUtilizationRates(const void*, Utilization* percent) {
  *percent = {0, 0};
  return kSuccess;
}
NVML int nvmlDeviceGetPowerUsage(const void*, unsigned* milliwatts) {
  *milliwatts = 0;
  return kSuccess;
}
NVML int nvmlDeviceGetTotalEnergyConsumption(const void*, unsigned long long* millijoules) {
  *millijoules = 0;
  return kSuccess;
}
NVML int nvmlDeviceGetTemperature(const void*, int, unsigned* celsius) {
  *celsius = 20;
  return kSuccess;
}
NVML int nvmlDeviceGetClockInfo(const void*, int, unsigned* mhz) {
  *mhz = 1000;
  return kSuccess;
}
NVML int nvmlDeviceGetMaxClockInfo(const void* handle, int type, unsigned* mhz) {
  return nvmlDeviceGetClockInfo(handle, type, mhz);
}

// --- what programs bind themselves to a GPU by
NVML int nvmlDeviceGetMinorNumber(const void* handle, unsigned* number) {
  return nvmlDeviceGetIndex(handle, number);
}
NVML int nvmlDeviceGetCudaComputeCapability(const void* handle, int* major, int* minor) {
  const Entry entry;
  const int index = device_of(handle);
  if (!is_installed(entry.process, index)) return kInvalidArgument;
  const auto& gpu = entry.process.config().installed[static_cast<std::size_t>(index)];
  *major = gpu.major;
  *minor = gpu.minor;
  return kSuccess;
}
// Of a machine with one node all processors are near each GPU: those that the process may have.
NVML int nvmlDeviceGetCpuAffinity(const void*, unsigned size, unsigned long* processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::memset(processors, 0, size * sizeof *processors);
  std::memcpy(processors, &set, std::min(size * sizeof *processors, sizeof set));
  return kSuccess;
}

// nvmlGpuFabricInfoV_t: version, 16 bytes of the cluster's name, status, clique, state. No fabric.
NVML int nvmlDeviceGetGpuFabricInfoV(void*, unsigned char* info) {
  constexpr std::size_t kVersionBytes = 4;
  constexpr std::size_t kUpToState = 29;
  std::memset(info + kVersionBytes, 0, kUpToState - kVersionBytes);
  return 0;
}
