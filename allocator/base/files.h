// Whole files, in and out.
#pragma once

#include <string>

namespace gapless {

/// The file's bytes. Throws InputError where it cannot be read.
std::string read_file(const std::string& path);
/// Writes all or nothing: to a file beside it, then renamed. Throws InputError.
void write_file(const std::string& path, const std::string& bytes);

}  // namespace gapless
