// Initialisation, devices, contexts, errors.
#include <cstdio>
#include <cstring>

#include "simgpu/front/cuda/common.h"
#include "simgpu/process/device_attributes.h"
#include "simgpu/process/stream_calls.h"
#include "simgpu/process/too_few_gpus.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

// A thread's stack of contexts. The topmost is the current device's, if that has one.
struct Contexts {
  std::vector<void*> below;
  bool unbound = false;  // the last one was popped
};
Contexts& contexts() {
  thread_local Contexts stack;
  return stack;
}

}  // namespace

CUDA int cuInit(unsigned) {
  const Entry entry;
  entry.process.initialized = true;
  if (entry.process.devices() != 0) return kSuccess;
  note_hidden_gpus(entry.process.config());
  return kNoDevice;
}
CUDA int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
CUDA int cuGetErrorString(int error, const char** text) {
  *text = to_string(static_cast<DriverStatus>(error));
  return kSuccess;
}
CUDA int cuGetErrorName(int error, const char** text) { return cuGetErrorString(error, text); }

CUDA int cuDeviceGet(int* device, int ordinal) {
  const Entry entry;
  *device = ordinal;
  if (entry.process.has(ordinal)) return kSuccess;
  note_absent_gpu(ordinal, entry.process.config());
  return kInvalidDevice;
}
CUDA int cuDeviceGetCount(int* count) {
  const Entry entry;
  if (!entry.process.initialized) return kNotInitialized;
  *count = entry.process.devices();
  return kSuccess;
}
CUDA int cuDeviceGetName(char* name, int length, int device) {
  const Entry entry;
  if (!entry.process.has(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(length), "%s",
                entry.process.gpu(device).name.c_str());
  return kSuccess;
}
CUDA int cuDeviceGetUuid_v2(char* uuid, int device) {
  const Entry entry;
  if (!entry.process.has(device)) return kInvalidDevice;
  std::snprintf(uuid, 15, "%s", "gapless-simgpu");
  uuid[15] = static_cast<char>(entry.process.installed_index(device));
  return kSuccess;
}
CUDA int cuDeviceGetUuid(char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
CUDA int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  const Entry entry;
  if (!entry.process.has(device)) return kInvalidDevice;
  *bytes = entry.process.gpu(device).total_bytes;
  return kSuccess;
}
CUDA int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Entry entry;
  if (!entry.process.has(device)) return kInvalidDevice;
  *value = device_attribute(entry.process.gpu(device), attribute);
  return kSuccess;
}
CUDA int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  const Entry entry;
  if (!entry.process.has(device) || !entry.process.has(peer)) return kInvalidDevice;
  *can = device != peer ? 1 : 0;
  return kSuccess;
}

// --- contexts ------------------------------------------------------------------------------------

CUDA int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  const Entry entry;
  if (!entry.process.has(device)) return kInvalidDevice;
  if (flags != nullptr) *flags = 0;
  *active = entry.process.memory.has_context(device) ? 1 : 0;
  return kSuccess;
}
CUDA int cuDevicePrimaryCtxRetain(void** context, int device) {
  const Entry entry;
  if (!entry.process.has(device)) return kInvalidDevice;
  entry.process.memory.ensure_context(device);
  *context = context_of(device);
  return kSuccess;
}
CUDA int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
CUDA int cuDevicePrimaryCtxReset_v2(int) {
  Entry().process.kernel_error = kSuccess;
  return kSuccess;
}
CUDA int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return kSuccess; }
CUDA int cuCtxGetCurrent(void** context) {
  const Entry entry;
  const int device = Process::current();
  const bool is_bound = !contexts().unbound && entry.process.memory.has_context(device);
  *context = is_bound ? context_of(device) : nullptr;
  return kSuccess;
}
CUDA int cuCtxSetCurrent(void* context) {
  const Entry entry;
  if (context == nullptr) return kSuccess;
  if (!entry.process.has(device_of(context))) return kInvalidContext;
  Process::current() = device_of(context);
  contexts().unbound = false;
  return kSuccess;
}
CUDA int cuCtxPushCurrent_v2(void* context) {
  void* before = nullptr;
  cuCtxGetCurrent(&before);
  if (const int error = cuCtxSetCurrent(context); error != kSuccess) return error;
  contexts().below.push_back(before);
  return kSuccess;
}
CUDA int cuCtxPopCurrent_v2(void** context) {
  void* current = nullptr;
  cuCtxGetCurrent(&current);
  if (current == nullptr) return kInvalidContext;
  if (context != nullptr) *context = current;
  Contexts& stack = contexts();
  void* before = nullptr;
  if (!stack.below.empty()) {
    before = stack.below.back();
    stack.below.pop_back();
  }
  stack.unbound = before == nullptr;
  return cuCtxSetCurrent(before);
}
CUDA int cuCtxGetDevice(int* device) {
  *device = Process::current();
  return kSuccess;
}
CUDA int cuCtxGetDevice_v2(int* device, void* context) {
  *device = context == nullptr ? Process::current() : device_of(context);
  return kSuccess;
}
CUDA int cuCtxSynchronize() { return stream_calls::synchronize_device(); }
CUDA int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kSuccess;
}
CUDA int cuLogsRegisterCallback(void*, void*, void** handle) {
  if (handle != nullptr) *handle = nullptr;
  return kSuccess;
}
CUDA int cuLogsUnregisterCallback(void*) { return kSuccess; }
