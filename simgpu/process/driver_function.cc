#include "simgpu/process/driver_function.h"

#include <string>

#include <dlfcn.h>

namespace gapless::simgpu {

void* driver_function(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return nullptr;
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    if (void* found = dlsym(library, (std::string(name) + version).c_str()); found != nullptr) {
      return found;
    }
  }
  return nullptr;
}

}  // namespace gapless::simgpu
