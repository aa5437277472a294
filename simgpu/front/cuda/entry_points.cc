// Functions by name, and the tables that only NVIDIA's own runtime knows.
#include <cstdio>
#include <cstring>
#include <string>

#include <dlfcn.h>

#include "simgpu/front/cuda/common.h"
#include "simgpu/process/driver_function.h"
#include "simgpu/process/no_gpu.h"
#include "simgpu/process/recorder.h"
#include "simgpu/verdict.h"

using namespace gapless::simgpu;

namespace {

// CUdriverProcAddressQueryResult
constexpr int kFound = 0;
constexpr int kNoSuchName = 1;

}  // namespace

CUDA int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t,
                             int* status) {
  *function = driver_function(name, version);
  if (status != nullptr) *status = *function != nullptr ? kFound : kNoSuchName;
  return *function != nullptr ? kSuccess : kNotFound;
}
CUDA int cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

// Asked for by a CUDA runtime that is linked into the program (nvcc's default), or another
// version's: it talks to the driver by undocumented tables. The real NVRTC looks whether there are
// any, and needs none.
CUDA int cuGetExportTable(const void**, const void*) {
  Dl_info caller{};
  if (dladdr(__builtin_return_address(0), &caller) != 0 && caller.dli_fname != nullptr &&
      std::strstr(caller.dli_fname, "/libnvrtc") != nullptr) {
    return kNotSupported;
  }
  static const bool said = [&caller] {
    const std::string file = caller.dli_fname == nullptr ? "the program" : caller.dli_fname;
    const std::string name = file.substr(file.rfind('/') + 1);
    if (name.starts_with("libcudart.so.")) {
      const std::string why =
          name + " is the runtime of another CUDA (" + file +
          "), and simulated GPUs have that of CUDA 13: use PyTorch 2.11 or newer, as PyPI has it";
      note_why_no_gpu(why);
      std::fprintf(stderr, "simgpu: %s\n", why.c_str());
      return true;
    }
    Recorder::get().missed(std::string(kLinkedRuntime) + name);
    std::fputs(
        "simgpu: this program has the CUDA runtime linked into it, which cannot run on a simulated "
        "GPU; link it with the shared one (nvcc -cudart shared)\n",
        stderr);
    return true;
  }();
  (void)said;
  return kNotSupported;
}
