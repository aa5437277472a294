#include "kernels/module.h"

#include <map>
#include <mutex>
#include <utility>

#include <dlfcn.h>

#include "kernels/cross_entropy.h"

namespace gapless::kernels {
namespace {

// CUDA's driver interface, as far as it is used here (cuda.h).
struct Driver {
  int (*context)(void** context) = nullptr;
  int (*load)(void** module, const void* image) = nullptr;
  int (*function)(void** function, void* module, const char* name) = nullptr;
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                void** arguments, void** extra) = nullptr;
  int (*name_of)(int error, const char** name) = nullptr;
  std::string error;

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      error = std::string("no CUDA driver: ") + (why != nullptr ? why : "libcuda.so.1");
      return;
    }
    find(library, context, "cuCtxGetCurrent");
    find(library, load, "cuModuleLoadData");
    find(library, function, "cuModuleGetFunction");
    find(library, launch, "cuLaunchKernel");
    find(library, name_of, "cuGetErrorName");
  }
  template <class Function>
  void find(void* library, Function& function_pointer, const char* name) {
    function_pointer = reinterpret_cast<Function>(dlsym(library, name));
    if (function_pointer == nullptr && error.empty())
      error = std::string("the CUDA driver lacks ") + name;
  }
  [[nodiscard]] std::string said(const char* call, int status) const {
    const char* name = nullptr;
    if (name_of(status, &name) != 0 || name == nullptr)
      return call + (": error " + std::to_string(status));
    return std::string(call) + ": " + name;
  }
};

const Driver& driver() {
  static const Driver made;
  return made;
}

struct Loaded {
  void* module = nullptr;
  std::map<std::string, void*> functions;
};

// Left to the driver, which ends a context's modules with it.
std::mutex& mutex() {
  static auto* const made = new std::mutex;
  return *made;
}
Loaded& loaded_in(void* context, const unsigned char* fat_binary) {
  static auto* const made = new std::map<std::pair<void*, const unsigned char*>, Loaded>;
  return (*made)[{context, fat_binary}];
}

std::string find(const unsigned char* fat_binary, const char* kernel, void** function) {
  void* context = nullptr;
  if (const int status = driver().context(&context))
    return driver().said("cuCtxGetCurrent", status);
  if (context == nullptr) return "no CUDA context is current in this thread";
  const std::scoped_lock lock(mutex());
  Loaded& loaded = loaded_in(context, fat_binary);
  if (loaded.module == nullptr) {
    if (const int status = driver().load(&loaded.module, fat_binary)) {
      loaded.module = nullptr;
      return driver().said("cuModuleLoadData", status);
    }
  }
  void*& known = loaded.functions[kernel];
  if (known == nullptr) {
    if (const int status = driver().function(&known, loaded.module, kernel)) {
      known = nullptr;
      return driver().said("cuModuleGetFunction", status) + " (" + kernel + ")";
    }
  }
  *function = known;
  return {};
}

std::string& last_error() {
  thread_local std::string error;
  return error;
}

}  // namespace

std::string launch(const unsigned char* fat_binary, const char* kernel, Shape shape, void* stream,
                   const void* argument) {
  if (!driver().error.empty()) return driver().error;
  void* function = nullptr;
  if (std::string error = find(fat_binary, kernel, &function); !error.empty()) return error;
  void* arguments[] = {const_cast<void*>(argument)};
  const int status = driver().launch(function, shape.blocks, 1, 1, shape.threads, 1, 1, 0, stream,
                                     arguments, nullptr);
  return status == 0 ? std::string()
                     : driver().said("cuLaunchKernel", status) + " (" + kernel + ")";
}

int answer(std::string error) {
  last_error() = std::move(error);
  return last_error().empty() ? 0 : 1;
}

}  // namespace gapless::kernels

KERNELS_API const char* gapless_kernels_last_error(void) {
  return gapless::kernels::last_error().c_str();
}
