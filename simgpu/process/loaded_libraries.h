// Which libraries the process has loaded. Unlike dlopen it waits for no constructor, so it may be
// asked for with a lock held.
#pragma once

#include <string>

namespace gapless::simgpu {

/// The path of the library with that file name ("libc10_cuda.so", which is also libc10_cuda.so.1);
/// empty where it is not loaded.
std::string path_of_loaded(const std::string& name);

}  // namespace gapless::simgpu
