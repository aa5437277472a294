// All of a file that may not be there: of another process, which may have ended, or of a run that
// may not have come to it. Where a file has to be there, read_file (allocator/base/files.h).
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace gapless::tools {

/// Empty where it cannot be read.
inline std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace gapless::tools
