// Moments of a recording: how much memory there was after each event, and what lay where.
//
//   event          alloc A   alloc B   oom   free A   ...end
//   allocated        1 GiB     3 GiB           2 GiB     -> the peak is after "alloc B"
//   segments       undone from those of the end, event by event, back to the moment asked for
//   blocks         those that live then, at their addresses; what is between them is free
//
// A recording tells what each block asked for, not what it was given: blocks count with their size
// rounded up to 512 B. What PyTorch leaves with a block beyond that counts as free here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/report/memory_state.h"
#include "allocator/trace/trace.h"

namespace gapless {

/// What a block takes of the memory, at least; 0 of an empty one.
std::uint64_t rounded_bytes(std::uint64_t requested_bytes);

/// Sums after an event.
struct MemorySums {
  std::uint64_t requested_bytes = 0;
  std::uint64_t allocated_bytes = 0;  // rounded_bytes() of what is live
  std::uint64_t active_bytes = 0;     // and of what is given up, but not free yet
  std::uint64_t reserved_bytes = 0;   // 0 where the recording does not tell
};

/// Walks through the events of a recording.
class MomentWalk {
 public:
  explicit MomentWalk(const Trace& trace);

  /// Goes on to the next event; false at the end.
  bool next();
  /// The event that was gone to last.
  [[nodiscard]] std::size_t event() const { return next_ - 1; }
  [[nodiscard]] const MemorySums& sums() const { return sums_; }

 private:
  struct Block {
    std::uint64_t requested_bytes = 0;
    bool requested_free = false;
  };

  const Trace& trace_;
  std::vector<Block> blocks_;
  std::size_t next_ = 0;
  MemorySums sums_;
};

/// Where a recording is looked at.
struct Moments {
  std::size_t peak = 0;  // the first event with the most active: peak_live_bytes()
  MemorySums at_peak;
  std::size_t reserved_peak = 0;  // the first with the most reserved
  MemorySums at_reserved_peak;
  MemorySums at_end;
  std::optional<std::size_t> oom;  // the last request that failed
  /// The recording ended with it: nothing was allocated afterwards.
  bool ended_with_oom = false;
};
/// Of a trace with events.
Moments find_moments(const Trace& trace);

/// Whether the recording tells of every segment: of those at its end, or since nothing was reserved
/// when it began.
bool tells_of_segments(const Trace& trace);

/// What lay where right after that event (before a request that failed). Blocks of which no segment
/// is known are segments by themselves.
MemoryState state_at(const Trace& trace, std::size_t event);

/// Of `columns` equal parts of the recording the most of each sum.
std::vector<MemorySums> course_of(const Trace& trace, std::size_t columns);

}  // namespace gapless
