// Writes traces as a snapshot of PyTorch's, which its viewers open (pytorch.org/memory_viz,
// python -m torch.cuda._memory_viz).
//
//   segments        as they were at the end, tiled by their blocks
//   device_traces   alloc, free_requested, free_completed, segment_alloc, ...   by device
//   gapless         what follows was added for the viewers:
//                     segments and addresses that the trace does not have (layout.h),
//                     a free_requested before each free that was not announced
//                     the sizes of frees where none has one
//
// Blocks that live before the first event are not written as events: a reader finds them by their
// frees, or in the segments. Reading such a file gives the trace again, without what was added.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

/// The key of the whole file that says what was added for each device and what recorded it, and of
/// each added event.
inline constexpr std::string_view kAddedByGapless = "added_by_gapless";

struct WrittenSnapshot {
  std::string bytes;
  /// What was added, in words: "gpu 0: segments", "gpu 0: segments and addresses".
  std::vector<std::string> added;
};

/// The traces of one recording: at most one of each device. Throws InputError where there are two.
WrittenSnapshot write_snapshot(const std::vector<Trace>& traces);

}  // namespace gapless
