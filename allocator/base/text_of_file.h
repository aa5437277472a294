// All of a file that may not be there: of another process, which may have ended, or of a run that
// may not have come to it. Where a file has to be there, read_file (files.h).
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace gapless {

/// Empty where it cannot be read, also where it could be opened: a process that ends between both
/// leaves a file of /proc that fails, for which a stream's iterator throws.
inline std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace gapless
