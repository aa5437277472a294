// libcublasLt.so.13: descriptors that keep what they are given, one algorithm with no workspace.
#include <cstring>
#include <map>
#include <vector>

#include "simgpu/process/library_handle.h"
#include "simgpu/process/memory_trace.h"

#define CUBLASLT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 7;

// A matmul, a layout, a preference: attributes by number.
using Descriptor = std::map<int, std::vector<unsigned char>>;

struct Algorithm {
  std::uint64_t data[8];
};

struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

int make(void** descriptor) {
  *descriptor = new Descriptor;
  return kSuccess;
}
int destroy(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return kSuccess;
}
int set(void* descriptor, int attribute, const void* value, std::size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(value);
  (*static_cast<Descriptor*>(descriptor))[attribute].assign(from, from + bytes);
  return kSuccess;
}
int get(void* descriptor, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  const auto& known = *static_cast<Descriptor*>(descriptor);
  const auto found = known.find(attribute);
  if (found == known.end()) return kInvalidValue;
  const std::size_t size = std::min(bytes, found->second.size());
  std::memcpy(value, found->second.data(), size);
  if (written != nullptr) *written = size;
  return kSuccess;
}

}  // namespace

CUBLASLT int cublasLtCreate(void** handle) {
  *handle = new gapless::simgpu::LibraryHandle;
  return kSuccess;
}
CUBLASLT int cublasLtDestroy(void* handle) {
  delete static_cast<gapless::simgpu::LibraryHandle*>(handle);
  return kSuccess;
}
CUBLASLT std::size_t cublasLtGetVersion() { return 130000; }
CUBLASLT std::size_t cublasLtGetCudartVersion() { return 13000; }
CUBLASLT int cublasLtMatmulDescCreate(void** descriptor, int, int) { return make(descriptor); }
CUBLASLT int cublasLtMatmulDescDestroy(void* descriptor) { return destroy(descriptor); }
CUBLASLT int cublasLtMatmulDescSetAttribute(void* descriptor, int attribute, const void* value,
                                            std::size_t bytes) {
  return set(descriptor, attribute, value, bytes);
}
CUBLASLT int cublasLtMatmulDescGetAttribute(void* descriptor, int attribute, void* value,
                                            std::size_t bytes, std::size_t* written) {
  return get(descriptor, attribute, value, bytes, written);
}
CUBLASLT int cublasLtMatrixLayoutCreate(void** layout, int, std::uint64_t, std::uint64_t,
                                        std::int64_t) {
  return make(layout);
}
CUBLASLT int cublasLtMatrixLayoutDestroy(void* layout) { return destroy(layout); }
CUBLASLT int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value,
                                              std::size_t bytes) {
  return set(layout, attribute, value, bytes);
}
CUBLASLT int cublasLtMatrixLayoutGetAttribute(void* layout, int attribute, void* value,
                                              std::size_t bytes, std::size_t* written) {
  return get(layout, attribute, value, bytes, written);
}
CUBLASLT int cublasLtMatmulPreferenceCreate(void** preference) { return make(preference); }
CUBLASLT int cublasLtMatmulPreferenceDestroy(void* preference) { return destroy(preference); }
CUBLASLT int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute,
                                                  const void* value, std::size_t bytes) {
  return set(preference, attribute, value, bytes);
}
CUBLASLT int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*,
                                            int wanted, Heuristic* results, int* count) {
  *count = wanted > 0 ? 1 : 0;
  if (wanted > 0) results[0] = Heuristic{};
  return kSuccess;
}
CUBLASLT int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int,
                                    Algorithm* algorithm) {
  *algorithm = {};
  return kSuccess;
}
CUBLASLT int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const Algorithm*,
                                     Heuristic* result) {
  *result = Heuristic{};
  return kSuccess;
}
CUBLASLT int cublasLtMatmulAlgoConfigSetAttribute(Algorithm*, int, const void*, std::size_t) {
  return kSuccess;
}
CUBLASLT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm*, int, void* value,
                                                  std::size_t bytes, std::size_t* written) {
  std::memset(value, 0, bytes);
  if (written != nullptr) *written = bytes;
  return kSuccess;
}
CUBLASLT int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*,
                            const void*, const void*, void*, void*, void*, const Algorithm*,
                            void* workspace, std::size_t, void* stream) {
  using gapless::simgpu::MemoryTrace;
  if (MemoryTrace::wanted()) MemoryTrace::get().workspace(workspace);
  gapless::simgpu::submit_library_work(stream);
  return kSuccess;
}
CUBLASLT const char* cublasLtGetStatusString(int status) {
  return status == kSuccess ? "success" : "the requested functionality is not supported";
}
