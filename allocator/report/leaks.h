// Leaks: call sites from which in every step something stays.
//
//   allocated  /\__/\___/\____/\_____      each step ends a little higher; the valleys are found by
//              v   v     v     v           how far memory falls and rises again
//   kept       x   x     x     x           losses.append(loss) at train.py:60: 4 of 4 steps left
//                                          something that is never freed
//
// Weights, optimiser states and caches are never freed either, but they come once, not in each
// step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

struct Leak {
  std::string site;               // empty where no stacks were recorded
  std::uint64_t block_bytes = 0;  // what one block asks for, where all ask for the same; else 0
  std::uint64_t bytes = 0;        // of all that was never freed
  std::uint64_t blocks = 0;
  std::uint64_t steps = 0;  // in which something stayed, of so many
  std::uint64_t of_steps = 0;
  std::uint64_t bytes_per_step = 0;  // in the mean of these
};

/// The most bytes first; none where the recording has fewer than five steps that can be told apart.
std::vector<Leak> find_leaks(const Trace& trace);

}  // namespace gapless
