#include "simgpu/front/nvrtc/real.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

namespace gapless::simgpu::nvrtc {
namespace {

constexpr const char* kName = "/libnvrtc.so.13";

// torch is loaded from .../site-packages/torch/lib/.
std::string beside_torch() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t torch = line.find("/torch/lib/libtorch");
    const std::size_t path = line.find('/');
    if (torch != std::string::npos && path != std::string::npos) {
      return line.substr(path, torch - path) + "/nvidia/cu13/lib";
    }
  }
  return {};
}

// The first that is there counts.
std::vector<std::string> places() {
  std::vector<std::string> found;
  for (const char* const name : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* const folder = std::getenv(name);
    if (folder != nullptr && *folder != '\0') {
      found.push_back(std::string(folder) + "/lib64" + kName);
    }
  }
  found.push_back(std::string("/usr/local/cuda/lib64") + kName);
  if (const std::string folder = beside_torch(); !folder.empty()) found.push_back(folder + kName);
  return found;
}

void* open() {
  for (const std::string& place : places()) {
    // By its path: of that name the library that this file is of is loaded already.
    if (access(place.c_str(), R_OK) != 0) continue;
    if (void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

void* real_function(const char* name) {
  static void* const library = open();
  return library == nullptr ? nullptr : dlsym(library, name);
}

}  // namespace gapless::simgpu::nvrtc
