#include "simgpu/process/torch_values.h"

#include <mutex>
#include <string>

#include <dlfcn.h>

#include "simgpu/process/loaded_libraries.h"
#include "simgpu/process/process.h"
#include "simgpu/torch/build_library.h"
#include "simgpu/torch/torch_version.h"

namespace gapless::simgpu {
namespace {

using Install = void (*)();

// Never unloaded: its kernels are in torch's dispatcher.
Install find_install(const std::string& version) {
  const std::string own = path_of_loaded("libsimgpu.so");
  const std::string path =
      own.substr(0, own.rfind('/') + 1) + "torch/libsimgpu_torch-" + version + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string libraries = own.substr(0, own.rfind('/')) + "/..";
    const std::string built =
        build_library("numbers", package_folder(libraries), libraries, loaded_torch_folder());
    library = built.empty() ? nullptr : dlopen(built.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return nullptr;
  return reinterpret_cast<Install>(dlsym(library, "simgpu_torch_install"));
}

}  // namespace

void load_values() {
  if (path_of_loaded("libtorch_cuda.so").empty()) return;
  static std::mutex mutex;
  static Install install = nullptr;
  static bool looked = false;
  const std::scoped_lock lock(mutex);
  if (!looked) {
    const std::string version = loaded_torch_version();
    if (version.empty()) return;
    looked = true;
    install = find_install(version);
  }
  if (install == nullptr) return;
  install();
  const Entry entry;
  entry.process.recorder.computes(entry.process.config().unknown);
}

}  // namespace gapless::simgpu
