// minimalloc's CSV: the problem of laying out buffers whose lifetimes are known, as the research
// solver of that name reads it, and its answer.
//
//   id,lower,upper,size,offset        b1 lives in [0, 3), which is at time 0: alloc b1, 4 bytes
//   b1,0,3,4,8                                            at time 3: free b1, alloc b2
//   b2,3,9,4,8                        what ends at a time is freed before what begins then
//
// Read: buffers become blocks, their names call sites, times the times of events, offsets
// addresses. The columns are found by their names, in any order; of old "start" or "begin", and
// "end", which is the last time of a buffer's life and not the one after it. Written: the time of
// an event is its place in the trace, but for a trace that came from such a file, which goes back
// with its own times, names and order.
#pragma once

#include <string>
#include <string_view>

#include "allocator/trace/trace.h"

namespace gapless {

/// Whether the first line names the columns of such a file.
bool looks_like_minimalloc(std::string_view bytes);

/// Reads such a file; `name` stands in errors. Throws InputError that names the line.
Trace read_minimalloc(std::string_view bytes, const std::string& name);

/// Whether the trace was read from such a file, so that times and names are the file's own.
bool came_from_minimalloc(const Trace& trace);

/// A file of the blocks of one trace, with offsets where the trace has addresses.
std::string write_minimalloc(const Trace& trace);

}  // namespace gapless
