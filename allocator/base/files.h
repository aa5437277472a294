// Whole files, in and out.
//
//   write_file("run.gtrace")   .gapless-3f9c01d2a7b4e655   new, beside it, written to its end
//                               -> run.gtrace              renamed: whole, or as it was before
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace gapless {

/// The file's bytes; a pipe is read to its end. Throws InputError where it cannot be read.
std::string read_file(const std::string& path);

/// Writes all or nothing: to a new file beside it, under a name that nobody else has, then renamed.
/// What is replaced is a regular file, which keeps its permissions, or nothing was there. A link is
/// followed, as by every program that opens what it is told to write: the file it names is
/// replaced, and the link stays; a link to nothing is an error. What is no regular file (a device,
/// a pipe, standard output by its name) is written to as it is. Throws InputError; then nothing
/// has changed, but for what such a device or pipe was sent.
void write_file(const std::string& path, std::string_view bytes);

/// The same of what is made piece by piece, so that the whole never is in memory.
using WriteBytes = std::function<void(std::string_view)>;
using ProduceBytes = std::function<void(const WriteBytes&)>;
void write_file(const std::string& path, const ProduceBytes& produce);

/// Why write_file() would fail as things are; empty where it would not. For who writes after hours.
std::string cannot_write(const std::string& path);

/// Whether the path names what standard output goes to (/dev/stdout).
bool is_standard_output(const std::string& path);

}  // namespace gapless
