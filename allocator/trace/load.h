// Opens a file of any format gapless reads, by its first bytes.
#pragma once

#include <string>
#include <vector>

#include "allocator/trace/snapshot.h"
#include "allocator/trace/trace.h"

namespace gapless {

/// The file's bytes. Throws InputError where it cannot be read.
std::string read_file(const std::string& path);
/// Writes all or nothing: to a file beside it, then renamed. Throws InputError.
void write_file(const std::string& path, const std::string& bytes);

/// The traces of a PyTorch snapshot or of a compact trace, one per device. Throws InputError; also
/// where the file holds no events.
std::vector<Trace> load_traces(const std::string& path);

/// A PyTorch snapshot with its segments. Throws InputError.
Snapshot load_snapshot(const std::string& path);

}  // namespace gapless
