// A CUDA program that knows nothing of gapless: it allocates and frees, and looks at what it wrote.
// At the end it prints how often CUDA itself was asked for memory (by the simulated GPU's count).
// Exit status 0: it completed; 1: out of memory; 2: something else went wrong.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "allocator/driver/call.h"

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

int fail(const char* what, cudaError_t error) {
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? 1 : 2;
}

}  // namespace

int main() {
  std::vector<void*> blocks(12);
  for (void*& block : blocks) {
    if (const cudaError_t error = cudaMalloc(&block, 8 * kMiB)) return fail("cudaMalloc", error);
  }
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    if (const cudaError_t error = cudaFree(blocks[i])) return fail("cudaFree", error);
  }
  void* large = nullptr;
  if (const cudaError_t error = cudaMalloc(&large, 48 * kMiB)) return fail("large", error);
  std::vector<char> bytes(48 * kMiB, 'x');
  if (const auto error = cudaMemcpy(large, bytes.data(), bytes.size(), cudaMemcpyHostToDevice)) {
    return fail("cudaMemcpy", error);
  }
  std::vector<char> back(bytes.size());
  if (const auto error = cudaMemcpy(back.data(), large, back.size(), cudaMemcpyDeviceToHost)) {
    return fail("cudaMemcpy", error);
  }
  if (back != bytes) return 2;

  cudaStream_t stream = nullptr;
  if (const cudaError_t error = cudaStreamCreate(&stream)) return fail("stream", error);
  if (const cudaError_t error = cudaFree(large)) return fail("cudaFree", error);
  for (int i = 0; i < 100; ++i) {
    void* part = nullptr;
    if (const cudaError_t error = cudaMallocAsync(&part, (1 + i % 40) * kMiB, stream)) {
      return fail("cudaMallocAsync", error);
    }
    if (const cudaError_t error = cudaFreeAsync(part, stream)) return fail("freeAsync", error);
  }
  // Neither null nor what nobody allocated is gapless's business.
  if (cudaFree(nullptr) != cudaSuccess || cudaFree(&stream) == cudaSuccess) return 2;
  for (std::size_t i = 1; i < blocks.size(); i += 2) {
    if (const cudaError_t error = cudaFree(blocks[i])) return fail("cudaFree", error);
  }
  std::array<std::uint64_t, gapless::kDriverCalls> calls{};
  using Calls = void (*)(std::uint64_t*);
  if (const auto count = reinterpret_cast<Calls>(dlsym(RTLD_DEFAULT, "simgpu_calls"))) {
    count(calls.data());
  }
  std::printf("completed with %d calls of cudaMalloc\n",
              static_cast<int>(calls[static_cast<std::size_t>(gapless::DriverCall::mem_alloc)]));
  return 0;
}
