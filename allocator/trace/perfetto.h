// Writes traces for Perfetto (ui.perfetto.dev) and chrome://tracing, as JSON of trace events.
//
//   process "gpu 0"   counters   requested, allocated, reserved      ___/--\_
//                     blocks     a slice for each, as long as it lives, by call site
//                     driver     segment_alloc, segment_free, ..., oom   |  |   |
//
// Times are microseconds where the trace has them, else the numbers of the events; `metadata` says
// which.
#pragma once

#include <vector>

#include "allocator/base/files.h"
#include "allocator/trace/trace.h"

namespace gapless {

/// The traces of one recording, piece by piece.
void write_perfetto(const std::vector<Trace>& traces, const WriteBytes& write);

}  // namespace gapless
