// Where the libraries in front of the simulated GPU are, for those who start programs with them.
#pragma once

#include <filesystem>
#include <string>

namespace gapless::simgpu {

/// GAPLESS_SIMGPU, or beside the running command: in the build tree or installed; by a path that
/// lists of such paths can hold (preload_path.h). Throws InputError.
std::filesystem::path front_folder();

/// All libraries of that folder, as LD_PRELOAD takes them.
std::string front_libraries(const std::filesystem::path& folder);
/// The same, before what is preloaded already.
std::string preload_list(const std::filesystem::path& folder);

}  // namespace gapless::simgpu
