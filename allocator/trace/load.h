// Opens a file of any format gapless reads, by its first bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/byte_source.h"
#include "allocator/trace/snapshot.h"
#include "allocator/trace/trace.h"

namespace gapless {

/// The traces of a PyTorch snapshot, a compact trace, a log of RMM's or a CSV of minimalloc's, one
/// per device. Throws InputError; also where the file holds no events.
std::vector<Trace> load_traces(const std::string& path);
/// The same of a file's bytes; `path` stands in errors.
std::vector<Trace> traces_of(std::string bytes, const std::string& path);
std::vector<Trace> traces_of(std::unique_ptr<ByteSource> source, const std::string& path);
/// The same with devices of a snapshot that have segments but no events (read_snapshot()).
std::vector<Trace> load_recording(const std::string& path);

/// A PyTorch snapshot with its segments. Throws InputError.
Snapshot load_snapshot(const std::string& path);
/// The same of a file's bytes; `path` stands in errors.
Snapshot snapshot_of(std::string bytes, const std::string& path, bool still_devices = false);
Snapshot snapshot_of(std::unique_ptr<ByteSource> source, const std::string& path,
                     bool still_devices = false);

/// By which a file's kind is told; the source gives them again after rewind().
std::string_view first_bytes(ByteSource& source);

}  // namespace gapless
