// Growths: what the recorded allocator took from its driver, and whether it had to.
//
//   reserved 27 GiB, active 13 GiB, segment_alloc 1.2 GiB     14 GiB were free, in pieces
//
// And whether the sizes asked for come again: memory in pieces of last step's sizes serves the next
// step only where that asks for the same.
#pragma once

#include <cstdint>

#include "allocator/trace/trace.h"

namespace gapless {

struct Growths {
  std::uint64_t times = 0;  // after what the recording began with
  std::uint64_t bytes = 0;
  /// Of these, those at which as much was reserved and free already.
  std::uint64_t needless_times = 0;
  std::uint64_t needless_bytes = 0;
  /// Requests above 1 MiB in the second half of the recording, and those of them of a size that
  /// nothing of the first half had, in 512 B.
  std::uint64_t large_requests = 0;
  std::uint64_t new_sizes = 0;

  /// A tenth and more of the second half's large requests were of new sizes.
  [[nodiscard]] bool sizes_change() const {
    return large_requests >= 20 && new_sizes * 10 >= large_requests;
  }
};

Growths find_growths(const Trace& trace);

}  // namespace gapless
