// Devices: how many there are, what they are, which one is current.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "allocator/base/bytes.h"
#include "simgpu/front/cudart/common.h"
#include "simgpu/process/device_attributes.h"
#include "simgpu/process/python_watch.h"
#include "simgpu/process/stream_calls.h"
#include "simgpu/process/too_few_gpus.h"
#include "simgpu/process/torch_values.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

constexpr int kVersion = 13000;

// The answer to who wants to use a GPU that there is none of.
int absent(const Process& process, int device) {
  note_absent_gpu(device, process.config());
  return answer(abi::invalid_device);
}

}  // namespace

CUDART int cudaGetDeviceCount(int* count) {
  {
    const Entry entry;
    entry.process.initialized = true;
    *count = entry.process.devices();
    if (*count == 0) note_hidden_gpus(entry.process.config());
  }
  load_values();
  watch_python();
  return answer(*count == 0 ? abi::no_device : abi::success);
}

CUDART int cudaGetDevice(int* device) {
  *device = Process::current();
  return abi::success;
}

CUDART int cudaSetDevice(int device) {
  const Entry entry;
  if (!entry.process.has(device)) return absent(entry.process, device);
  entry.process.initialized = true;
  entry.process.memory.ensure_context(device);
  Process::current() = device;
  return abi::success;
}

CUDART int cudaInitDevice(int device, unsigned, unsigned) {
  const Entry entry;
  if (!entry.process.has(device)) return absent(entry.process, device);
  entry.process.memory.ensure_context(device);
  return abi::success;
}

CUDART int cudaSetDeviceFlags(unsigned) { return abi::success; }
CUDART int cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return abi::success;
}

CUDART int cudaDeviceGetAttribute(int* value, int what, int device) {
  const Entry entry;
  if (!entry.process.has(device)) return answer(abi::invalid_device);
  *value = device_attribute(entry.process.gpu(device), what);
  return abi::success;
}

CUDART int cudaGetDeviceProperties(abi::DeviceProp* prop, int device) {
  const Entry entry;
  if (!entry.process.has(device)) return answer(abi::invalid_device);
  const GpuProfile& gpu = entry.process.gpu(device);
  std::memset(prop, 0, sizeof *prop);
  std::snprintf(prop->name, sizeof prop->name, "%s", gpu.name.c_str());
  std::memcpy(prop->uuid, "gapless-simgpu", 14);
  prop->uuid[15] = static_cast<char>(entry.process.installed_index(device));
  prop->totalGlobalMem = gpu.total_bytes;
  prop->sharedMemPerBlock = 48 * KiB;
  prop->regsPerBlock = 65536;
  prop->warpSize = 32;
  prop->memPitch = 2147483647;
  prop->maxThreadsPerBlock = 1024;
  prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
  prop->maxThreadsDim[2] = 64;
  prop->maxGridSize[0] = 2147483647;
  prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
  prop->totalConstMem = 64 * KiB;
  prop->major = gpu.major;
  prop->minor = gpu.minor;
  prop->textureAlignment = 512;
  prop->texturePitchAlignment = 32;
  prop->multiProcessorCount = gpu.multiprocessors;
  prop->canMapHostMemory = 1;
  prop->surfaceAlignment = 512;
  prop->concurrentKernels = 1;
  prop->pciBusID = entry.process.installed_index(device) + 1;
  prop->asyncEngineCount = 3;
  prop->unifiedAddressing = 1;
  prop->memoryBusWidth = 5120;
  prop->l2CacheSize = static_cast<int>(gpu.l2_bytes);
  prop->maxThreadsPerMultiProcessor = gpu.threads_per_multiprocessor;
  prop->streamPrioritiesSupported = 1;
  prop->globalL1CacheSupported = prop->localL1CacheSupported = 1;
  prop->sharedMemPerMultiprocessor = gpu.shared_per_multiprocessor_bytes;
  prop->regsPerMultiprocessor = 65536;
  prop->managedMemory = 1;
  prop->concurrentManagedAccess = 1;
  prop->computePreemptionSupported = 1;
  prop->canUseHostPointerForRegisteredMem = 1;
  prop->cooperativeLaunch = 1;
  prop->sharedMemPerBlockOptin = gpu.shared_per_block_optin_bytes;
  prop->maxBlocksPerMultiProcessor = 32;
  prop->reservedSharedMemPerBlock = 1024;
  prop->hostRegisterSupported = 1;
  prop->memoryPoolsSupported = 1;
  prop->memoryPoolSupportedHandleTypes = 1;
  prop->ipcEventSupported = 1;
  prop->clusterLaunch = gpu.major >= 9 ? 1 : 0;
  prop->unifiedFunctionPointers = 1;
  return abi::success;
}

CUDART int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  const Entry entry;
  if (!entry.process.has(device)) return answer(abi::invalid_device);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                entry.process.installed_index(device) + 1);
  return abi::success;
}

CUDART int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned domain = 0;
  unsigned bus = 0;
  if (std::sscanf(text, "%x:%x", &domain, &bus) != 2) return answer(abi::invalid_value);
  const Entry entry;
  const auto& seen = entry.process.config().installed_index;
  const auto found = std::find(seen.begin(), seen.end(), static_cast<int>(bus) - 1);
  if (found == seen.end()) return answer(abi::invalid_device);
  *device = static_cast<int>(found - seen.begin());
  return abi::success;
}

CUDART int cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return abi::success;
}
CUDART int cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return abi::success;
}

CUDART int cudaDeviceSynchronize() { return answer(stream_calls::synchronize_device()); }
CUDART int cudaDeviceReset() {
  Entry().process.kernel_error = abi::success;
  return abi::success;
}

CUDART int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const Entry entry;
  if (!entry.process.has(device) || !entry.process.has(peer)) return answer(abi::invalid_device);
  *can = device != peer ? 1 : 0;
  return abi::success;
}
CUDART int cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const Entry entry;
  return answer(entry.process.has(peer) ? abi::success : abi::invalid_device);
}
CUDART int cudaDeviceDisablePeerAccess(int) { return abi::success; }
CUDART int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return abi::success;
}
CUDART int cudaDeviceGetLimit(std::size_t* value, int) {
  *value = 1024;
  return abi::success;
}
CUDART int cudaDeviceSetLimit(int, std::size_t) { return abi::success; }
CUDART int cudaDeviceSetCacheConfig(int) { return abi::success; }
CUDART int cudaProfilerStart() { return abi::success; }
CUDART int cudaProfilerStop() { return abi::success; }
