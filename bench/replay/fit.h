// Fit: the least memory of a GPU with which a recorded run completes, to 2 MiB.
//
//   capacity, GiB    15.9    16.05    16.11    16.14    16.22    16.28   16.30   16.5 ...  27.3
//   native           fails   completes  fails  fails    completes fails  COMPLETES   and all above
//                            lowest                                      least
//
// With more memory a run may fail that completed with less: an allocator that runs out gives its
// cache back, and what is freed when decides what lies where from then on. So the answer is not
// where a bisection happens to end: larger capacities are tried as well, and the answer lies above
// every one that failed.
#pragma once

#include <optional>

#include "bench/replay/replay.h"

namespace gapless::bench {

struct Fit {
  /// The run completes with this, does not with 2 MiB less, and does with every larger capacity
  /// that was tried.
  std::uint64_t least_bytes = 0;
  /// So many larger ones were: those next to it, some closely up to 4 % more, ever farther ones up
  /// to what it takes where there is plenty, the next whole GiB, and what cards have.
  std::uint64_t tried_above = 0;
  /// The least with which it was seen to complete; less than the above where some between fail.
  std::uint64_t lowest_bytes = 0;
};

/// As replay(), with capacities of its own choice; nothing is timed. Nothing where the run
/// completes on no GPU up to the largest.
std::optional<Fit> least_capacity(const Trace& trace, const std::string& allocator,
                                  const ReplayOptions& options);

}  // namespace gapless::bench
