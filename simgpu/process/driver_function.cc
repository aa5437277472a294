#include "simgpu/process/driver_function.h"

#include <string>
#include <string_view>

#include <dlfcn.h>

namespace gapless::simgpu {

namespace {

// Functions that got other parameters after CUDA 11.3, the oldest that gapless and PyTorch ask for:
// what they were before.
struct Older {
  std::string_view name;
  int until;  // the version of CUDA that changed it
  const char* symbol;
};
constexpr Older kOlder[] = {
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v2"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies"},
    {"cuCtxSynchronize", 13000, "cuCtxSynchronize"},
};

}  // namespace

void* driver_function(const char* name, int version) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return nullptr;
  for (const Older& older : kOlder) {
    if (older.name == name && version < older.until) return dlsym(library, older.symbol);
  }
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    if (void* found = dlsym(library, (std::string(name) + suffix).c_str()); found != nullptr) {
      return found;
    }
  }
  return nullptr;
}

}  // namespace gapless::simgpu
