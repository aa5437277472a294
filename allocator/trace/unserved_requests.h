// What a recorded program asked for and did not get: the `oom` events of its trace.
//
//   alloc ... 14.83 GiB live, oom 2.07 GiB, frees     nothing was allocated after it: the run ended
//                                                     there. It needs 16.90 GiB at least, and
//                                                     nobody knows what it would have needed after
//                                                     that
//   alloc ... oom 2.07 GiB, alloc 1.03 GiB ...        the program went on with less: what follows
//                                                     is what it does where memory is short
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

struct UnservedRequest {
  std::uint64_t event = 0;        // index into Trace::events
  std::uint64_t bytes = 0;        // what was asked for
  std::uint64_t live_bytes = 0;   // what was live then, each block rounded up to 512 B
  std::uint64_t needs_bytes = 0;  // both together, rounded up likewise: no allocator does with less
};

struct UnservedRequests {
  std::vector<UnservedRequest> all;  // in the order of events
  /// How many of them, the last ones, no allocation came after.
  std::size_t unanswered = 0;

  /// Whether the run ended for want of memory.
  [[nodiscard]] bool ended() const { return unanswered != 0; }
  /// Of the requests a run ended with, the one that needs least: with that served it would have
  /// gone on. Nothing where it did not end so.
  [[nodiscard]] std::optional<UnservedRequest> last_straw() const;
  /// Of the requests after which the program went on, the one that needs most; nothing if none.
  [[nodiscard]] std::optional<UnservedRequest> most_missed() const;
};

UnservedRequests unserved_requests(const Trace& trace);

/// The run with that request served: its event is an allocation, of a block that lives to the end.
Trace with_request_served(Trace trace, const UnservedRequest& request);

}  // namespace gapless
