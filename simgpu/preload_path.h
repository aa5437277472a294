// preloadable: a folder of libraries by a path that LD_PRELOAD can hold.
//
//   /home/Jo Doe/gapless/lib              LD_PRELOAD splits at spaces and colons, and cannot quote
//   ~/.cache/gapless/links/5f0c41.../     a link to it, in a folder that only this user can change
//
// The link stays: a program's children are started long after the command that made it has ended.
#pragma once

#include <filesystem>

namespace gapless::simgpu {

/// The folder's absolute path without links in it or, where LD_PRELOAD cannot hold that, a private
/// link to it. Throws InputError where there is no such folder, or no place for the link.
std::filesystem::path preloadable(const std::filesystem::path& folder);

}  // namespace gapless::simgpu
