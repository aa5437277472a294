#include "simgpu/front_libraries.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "allocator/base/error.h"
#include "simgpu/preload_path.h"

namespace gapless::simgpu {

namespace fs = std::filesystem;

fs::path front_folder() {
  if (const char* folder = std::getenv("GAPLESS_SIMGPU"); folder != nullptr) {
    return preloadable(folder);
  }
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* place : {"../lib/simgpu", "../lib/gapless/lib/simgpu"}) {
    if (fs::exists(here / place / "libsimgpu.so")) return preloadable(here / place);
  }
  throw InputError("the simulated GPU's libraries are not beside " + here.string() +
                   "; build all of gapless, or set GAPLESS_SIMGPU to their folder");
}

std::string front_libraries(const fs::path& folder) {
  std::vector<std::string> libraries;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".so") != std::string::npos) libraries.push_back(entry.path().string());
  }
  std::sort(libraries.begin(), libraries.end());
  return fmt::format("{}", fmt::join(libraries, ":"));
}

std::string preload_list(const fs::path& folder) {
  std::string text = front_libraries(folder);
  if (const char* before = std::getenv("LD_PRELOAD"); before != nullptr && *before != '\0') {
    text += ":" + std::string(before);
  }
  return text;
}

}  // namespace gapless::simgpu
