// The compact trace format: small files that are read at memory speed.
//
//   +----------+------------------+--------------------+-- - -+-------+----------------+
//   | magic 8  | header (zstd)    | records (zstd)     |  ... | index | footer 24      |
//   |          | JSON: devices,   | up to 65536 events |      | (zstd | where the      |
//   |          | streams, sites   | of 40 bytes        |      | JSON) | index lies     |
//   +----------+------------------+--------------------+-- - -+-------+----------------+
//
// The header says what was recorded where, with the stacks of all call sites as one tree and what
// was reserved at the end, where that is known; the index says which frame holds which events of
// which device, so that a reader may start in the middle. Every zstd frame carries a checksum.
// Integers are little endian. All recorded devices of a process live in one file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

/// The bytes of a file that holds these traces.
std::string write_compact(const std::vector<Trace>& traces);

/// Reads such a file; `name` stands in errors. Throws InputError.
std::vector<Trace> read_compact(std::string_view bytes, const std::string& name);

/// Whether the first bytes are those of a compact trace.
bool looks_like_compact(std::string_view bytes);

}  // namespace gapless
