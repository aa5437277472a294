// libgapless_cuda.so: gapless for CUDA programs without PyTorch, by LD_PRELOAD.
//
//   LD_PRELOAD=libgapless_cuda.so ./my_program
//
//   cudaMalloc       a block; the host waits until whoever had the memory before is done with it
//   cudaFree         waits for the device, as CUDA's does, and keeps the memory for the next
//   request cudaMallocAsync  a block in the order of the stream, which waits for others on the
//   device cudaFreeAsync    free when the stream gets there
//
// Each keeps what CUDA promises of it. What gapless did not hand out, and what a stream that is
// being captured asks for, goes to CUDA's own functions. Programs with the CUDA runtime linked into
// them (nvcc's default; -cudart shared is the other way) call no library and cannot be reached.
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

#include "allocator/base/terminal_text.h"
#include "allocator/gapless.h"

namespace {

// cudaError_t
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kMemoryAllocation = 2;
constexpr int kUnknown = 999;

template <class Function>
Function* real(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::fprintf(stderr, "gapless: there is no %s to pass on to\n", name);
  return reinterpret_cast<Function*>(found);
}

int call_real_free(const char* name, void* memory) {
  auto* const function = real<int(void*)>(name);
  return function == nullptr ? kUnknown : function(memory);
}

// The process's allocator; nullptr, said once, where there is none to be had.
gapless_allocator* allocator() {
  static gapless_allocator* const made = [] {
    gapless_allocator* fresh = nullptr;
    const gapless_status status = gapless_create(nullptr, &fresh);
    const std::string why = gapless::terminal_text(gapless_last_error());
    if (status == GAPLESS_INVALID_ARGUMENT) {
      // The program asks for something, a limit perhaps: it is not to run without.
      std::fflush(nullptr);
      std::fprintf(stderr, "gapless: %s\n", why.c_str());
      constexpr int kBadInput = 2;
      std::_Exit(kBadInput);
    }
    if (status != GAPLESS_OK) {
      std::fprintf(stderr, "gapless: %s: CUDA's own functions are used\n", why.c_str());
    }
    return fresh;
  }();
  return made;
}

int error_of(gapless_status status) {
  switch (status) {
    case GAPLESS_OK:
      return kSuccess;
    case GAPLESS_OUT_OF_MEMORY:
      return kMemoryAllocation;
    case GAPLESS_INVALID_ARGUMENT:
      return kInvalidValue;
    default:
      return kUnknown;
  }
}

int current_device() {
  int device = 0;
  auto* const get = real<int(int*)>("cudaGetDevice");
  if (get != nullptr) (void)get(&device);
  return device;
}

bool is_capturing(void* stream) {
  int status = 0;
  auto* const ask = real<int(void*, int*)>("cudaStreamIsCapturing");
  return ask != nullptr && ask(stream, &status) == kSuccess && status != 0;
}

int wait(const char* name) {
  auto* const function = real<int()>(name);
  return function == nullptr ? kUnknown : function();
}

int allocate(void** memory, std::size_t bytes, void* stream) {
  if (memory == nullptr) return kInvalidValue;
  *memory = nullptr;
  return error_of(gapless_alloc(allocator(), current_device(), bytes, stream, memory));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cudaMalloc(void** memory, std::size_t bytes) {
  if (allocator() == nullptr) {
    auto* const function = real<int(void**, std::size_t)>("cudaMalloc");
    return function == nullptr ? kUnknown : function(memory, bytes);
  }
  const int error = allocate(memory, bytes, nullptr);
  if (error != kSuccess || bytes == 0) return error;
  auto* const synchronize = real<int(void*)>("cudaStreamSynchronize");
  return synchronize == nullptr ? kUnknown : synchronize(nullptr);
}

EXPORTED int cudaFree(void* memory) {
  if (memory == nullptr || allocator() == nullptr) return call_real_free("cudaFree", memory);
  std::size_t unused = 0;
  if (!gapless_owns(allocator(), memory, &unused)) return call_real_free("cudaFree", memory);
  if (const int error = wait("cudaDeviceSynchronize"); error != kSuccess) return error;
  return error_of(gapless_free(allocator(), memory));
}

EXPORTED int cudaMallocAsync(void** memory, std::size_t bytes, void* stream) {
  if (allocator() == nullptr || is_capturing(stream)) {
    auto* const function = real<int(void**, std::size_t, void*)>("cudaMallocAsync");
    return function == nullptr ? kUnknown : function(memory, bytes, stream);
  }
  return allocate(memory, bytes, stream);
}

EXPORTED int cudaFreeAsync(void* memory, void* stream) {
  std::size_t unused = 0;
  if (allocator() == nullptr || !gapless_owns(allocator(), memory, &unused)) {
    auto* const function = real<int(void*, void*)>("cudaFreeAsync");
    return function == nullptr ? kUnknown : function(memory, stream);
  }
  const int error = error_of(gapless_record_stream(allocator(), memory, stream));
  return error != kSuccess ? error : error_of(gapless_free(allocator(), memory));
}
