// OomDump: what is written where a request failed, so that it can be looked at afterwards.
//
//   GAPLESS_CONF=dump_on_oom:troubles
//     troubles/oom-4711-gpu0-1.txt           the message
//     troubles/oom-4711-gpu0-1.dump.json     what lay where (gapless inspect)
//     troubles/oom-4711-gpu0-1.report.json   why the request failed, as data
//     troubles/oom-4711-gpu0-1.pickle        PyTorch's snapshot, where it can be had
//
// A program that catches its errors and tries again may fail thousands of times: of each device the
// first few are written.
#pragma once

#include <functional>
#include <string>

#include "allocator/report/out_of_memory.h"

namespace gapless {

/// So many of each device and process.
inline constexpr int kMostOomDumps = 3;

/// Writes to that folder, which is made if it is not there, and says where, or why not: a sentence
/// for the message. Empty where enough was written. Throws nothing. `snapshot`: PyTorch's, as
/// bytes; may be null, and what it throws is told.
std::string write_oom_dump(const std::string& folder, const HeapReport& heap,
                           const OutOfMemoryReport& report, const std::string& message,
                           const std::function<std::string()>& snapshot = nullptr);

}  // namespace gapless
