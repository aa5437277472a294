// Which torch is loaded, without knowing anything of its types: its libraries say so themselves.
#pragma once

#include <cstdint>
#include <string>

#include <dlfcn.h>
#include <link.h>

namespace gapless::simgpu {

/// "2.11"; empty where no torch is loaded, or one older than 2.6, which does not tell.
inline std::string loaded_torch_version() {
  void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  std::string version;
  using VersionFunction = std::uint64_t (*)();
  if (const auto ask =
          reinterpret_cast<VersionFunction>(dlsym(library, "aoti_torch_abi_version"))) {
    // Major, minor and patch in the highest three bytes.
    const std::uint64_t packed = ask();
    version = std::to_string(packed >> 56) + "." + std::to_string(packed >> 48 & 255);
  }
  dlclose(library);
  return version;
}

/// ".../site-packages/torch", which has include/ and lib/; empty where no torch is loaded.
inline std::string loaded_torch_folder() {
  void* const library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  struct link_map* map = nullptr;
  std::string folder;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) folder = map->l_name;
  dlclose(library);
  for (int up = 0; up < 2; ++up) {
    const std::size_t slash = folder.rfind('/');
    folder.resize(slash == std::string::npos ? 0 : slash);
  }
  return folder;
}

}  // namespace gapless::simgpu
