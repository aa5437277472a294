// libcublas.so.13: handles. What computes is generated, and does nothing.
#include "simgpu/process/library_handle.h"
#include "simgpu/process/memory_trace.h"
#include "simgpu/process/process.h"

#define CUBLAS extern "C" __attribute__((visibility("default")))

using gapless::simgpu::LibraryHandle;

namespace {

constexpr int kSuccess = 0;
constexpr int kVersion = 130000;

LibraryHandle& at(void* handle) { return *static_cast<LibraryHandle*>(handle); }

}  // namespace

CUBLAS int cublasCreate_v2(void** handle) {
  *handle = new LibraryHandle;
  return kSuccess;
}
CUBLAS int cublasDestroy_v2(void* handle) {
  delete static_cast<LibraryHandle*>(handle);
  return kSuccess;
}
CUBLAS int cublasGetVersion_v2(void*, int* version) {
  *version = kVersion;
  return kSuccess;
}
CUBLAS int cublasGetProperty(int type, int* value) {
  *value = type == 0 ? kVersion / 10000 : 0;
  return kSuccess;
}
CUBLAS std::size_t cublasGetCudartVersion() { return 13000; }
CUBLAS int cublasSetStream_v2(void* handle, void* stream) {
  at(handle).stream = stream;
  return kSuccess;
}
CUBLAS int cublasGetStream_v2(void* handle, void** stream) {
  *stream = at(handle).stream;
  return kSuccess;
}
CUBLAS int cublasSetWorkspace_v2(void*, void* workspace, std::size_t) {
  using gapless::simgpu::MemoryTrace;
  if (MemoryTrace::wanted()) MemoryTrace::get().workspace(workspace);
  return kSuccess;
}
CUBLAS int cublasSetMathMode(void* handle, int mode) {
  at(handle).math_mode = mode;
  return kSuccess;
}
CUBLAS int cublasGetMathMode(void* handle, int* mode) {
  *mode = at(handle).math_mode;
  return kSuccess;
}
CUBLAS int cublasSetPointerMode_v2(void* handle, int mode) {
  at(handle).pointer_mode = mode;
  return kSuccess;
}
CUBLAS int cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = at(handle).pointer_mode;
  return kSuccess;
}
CUBLAS int cublasSetAtomicsMode(void*, int) { return kSuccess; }
CUBLAS int cublasSetSmCountTarget(void*, int) { return kSuccess; }
CUBLAS int cublasSetEmulationStrategy(void*, int) { return kSuccess; }
CUBLAS const char* cublasGetStatusString(int status) {
  return status == kSuccess ? "success" : "the requested functionality is not supported";
}
CUBLAS const char* cublasGetStatusName(int status) {
  return status == kSuccess ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
