// cudaGetDriverEntryPoint: names of the driver's functions to what libcuda.so.1 has, which is
// loaded beside this library.
#include <string>

#include <dlfcn.h>

#include "simgpu/front/cudart/common.h"

using namespace gapless::simgpu;

namespace {

void* driver_function(const std::string& name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return nullptr;
  // A name stands for its newest version that a CUDA 13 caller knows.
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    if (void* found = dlsym(library, (name + version).c_str()); found != nullptr) return found;
  }
  return nullptr;
}

int entry_point(const char* name, void** function, int* status) {
  *function = driver_function(name);
  if (status != nullptr) *status = *function == nullptr ? 1 : 0;  // symbol not found: success
  return abi::success;
}

}  // namespace

CUDART int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                   int* status) {
  return entry_point(name, function, status);
}
CUDART int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                            unsigned long long, int* status) {
  return entry_point(name, function, status);
}
