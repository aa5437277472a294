// Which torch is loaded, without knowing anything of its types: its libraries say so themselves.
#pragma once

#include <cstdint>
#include <string>

#include <dlfcn.h>

namespace gapless::torch_plugin {

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

}  // namespace gapless::torch_plugin
