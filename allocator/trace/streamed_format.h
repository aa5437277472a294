// The streamed trace format: the compact format's records while they come, so that a file is whole
// up to the last frame that was written, however the program ended.
//
//   +---------+---------------------+-----------------------+-----------------------+-- - -+-----+
//   | magic 8 | names (JSON)        | events of trace 0     | names: what is new    |  ... | end |
//   |         | devices             | up to 65536 x 40 B    | streams, pools, sites |      |     |
//   +---------+---------------------+-----------------------+-----------------------+-- - -+-----+
//   a frame:  kind u32 | trace u32 | bytes u64 | that many bytes: one zstd frame with a checksum
//
// Names come before the first event that uses them. The last frame says that the recording was
// ended; without it the program was, and a frame that is cut off is left out.
// `gapless convert run.gtrace small.gtrace` makes a compact file of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

inline constexpr std::string_view kStreamedMagic{"GAPLESS\x02", 8};

enum class StreamedFrame : std::uint32_t { names = 1, events = 2, end = 3 };

/// Of 16 bytes, little endian as everything.
struct StreamedFrameHeader {
  StreamedFrame kind = StreamedFrame::names;
  std::uint32_t trace = 0;  // events: of which trace
  std::uint64_t bytes = 0;
};

/// Reads such a file; `name` stands in errors. Throws InputError. What is missing, because events
/// were lost or the file is cut off, is said in each trace's warnings.
std::vector<Trace> read_streamed(std::string_view bytes, const std::string& name);

/// Whether the first bytes are those of a streamed trace.
bool looks_like_streamed(std::string_view bytes);

}  // namespace gapless
