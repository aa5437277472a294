// RMM's log: what RMM's logging_resource_adaptor writes, one line for each call of one device.
//
//   Thread,Time,Action,Pointer,Size,Stream
//   2342727,15:47:02.841961,allocate,0x10012400000,1048576,0           alloc, block 0
//   2342727,15:47:02.841977,allocate failure,(nil),99999999999,0x2     oom
//   2342731,15:47:03.000001,free,0x10012400000,1048576,0               free, block 0
//
// All versions: times with a point or a colon before the microseconds, or in seconds since 1970;
// pointers and streams in hex or, of old, streams as decimal numbers; failures without a pointer or
// with a null one. The time of day has no date: such times count from the midnight before the first
// line. The log says nothing of segments, of what calls were made from, or of frees that wait.
#pragma once

#include <string>
#include <string_view>

#include "allocator/trace/trace.h"

namespace gapless {

/// Whether the first line is the header of such a log.
bool looks_like_rmm_log(std::string_view bytes);

/// Reads a log; `name` stands in errors, and where it ends in ".dev3" or ".dev3.csv", as RMM names
/// its files, says the device. Throws InputError that names the line.
Trace read_rmm_log(std::string_view bytes, const std::string& name);

}  // namespace gapless
