// libcudnn.so.9: versions and the choice of algorithms. Descriptors and what computes are
// generated.
#include <cstddef>
#include <cstring>

#include "simgpu/front/cudnn/common.h"
#include "simgpu/process/library_handle.h"

using gapless::simgpu::LibraryHandle;

using namespace gapless::simgpu::cudnn;

namespace {

// Newer than what torch 2.15 was built with: torch refuses an older one at run time.
constexpr int kVersion = 99900;

// cudnnConvolution*AlgoPerf_t; the three have one layout.
struct AlgorithmResult {
  int algorithm;
  int status;
  float milliseconds;
  std::size_t workspace_bytes;
  int deterministic;
  int math_type;
  int reserved[3];
};

int choose(int requested, int* returned, AlgorithmResult* results) {
  *returned = requested > 0 ? 1 : 0;
  if (requested > 0) results[0] = AlgorithmResult{};
  simgpu_guess("libcudnn.so.9");
  return kSuccess;
}

}  // namespace

CUDNN std::size_t cudnnGetVersion() { return kVersion; }
CUDNN std::size_t cudnnGetCudartVersion() { return 13000; }
CUDNN int cudnnGetProperty(int type, int* value) {
  const int parts[] = {kVersion / 10000, kVersion / 100 % 100, kVersion % 100};
  *value = type >= 0 && type < 3 ? parts[type] : 0;
  return kSuccess;
}
CUDNN const char* cudnnGetErrorString(int status) {
  return status == kSuccess ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED";
}
CUDNN void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  if (bytes != 0) text[0] = '\0';
}
CUDNN int cudnnGetStream(void* handle, void** stream) {
  *stream = static_cast<LibraryHandle*>(handle)->stream;
  return kSuccess;
}

// --- convolutions of the legacy interface
// ---------------------------------------------------------

CUDNN int cudnnGetConvolutionForwardAlgorithm_v7(void*, void*, void*, void*, void*, int requested,
                                                 int* returned, AlgorithmResult* results) {
  return choose(requested, returned, results);
}
CUDNN int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, void*, void*, void*, void*,
                                                      int requested, int* returned,
                                                      AlgorithmResult* results) {
  return choose(requested, returned, results);
}
CUDNN int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, void*, void*, void*, void*,
                                                        int requested, int* returned,
                                                        AlgorithmResult* results) {
  return choose(requested, returned, results);
}
CUDNN int cudnnFindConvolutionForwardAlgorithmEx(void*, void*, void*, void*, void*, void*, void*,
                                                 void*, int requested, int* returned,
                                                 AlgorithmResult* results, void*, std::size_t) {
  return choose(requested, returned, results);
}
CUDNN int cudnnFindConvolutionBackwardDataAlgorithmEx(void*, void*, void*, void*, void*, void*,
                                                      void*, void*, int requested, int* returned,
                                                      AlgorithmResult* results, void*,
                                                      std::size_t) {
  return choose(requested, returned, results);
}
CUDNN int cudnnFindConvolutionBackwardFilterAlgorithmEx(void*, void*, void*, void*, void*, void*,
                                                        void*, void*, int requested, int* returned,
                                                        AlgorithmResult* results, void*,
                                                        std::size_t) {
  return choose(requested, returned, results);
}
