// Traces of programs whose sizes never repeat: the hard case for an allocator that learns.
//
//   varlen   training of a transformer whose sequences have another length in every step
//   metrics  the same, and of each layer and step a small tensor is kept for good
//   moe      training with experts, each given another number of tokens in every step
//   serve    requests of random length come and go; their key-value caches grow by 256 tokens
//   serve-concat  the same with caches that grow by concatenation in every step: 24 blocks a
//   request,
//            each replaced by one a little longer, with memory nearly full; the hardest we know
//
// Made by rules, from a seed: the same seed gives the same trace, event for event.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless::bench {

struct SyntheticOptions {
  int steps = 300;
  std::uint64_t seed = 1;
  std::uint64_t batch = 8;  // sequences in a step of varlen and metrics; memory grows with them
};

/// "varlen", "metrics", "moe", "serve", "serve-concat".
std::vector<std::string> synthetic_kinds();

/// Throws std::invalid_argument for an unknown kind.
Trace synthetic_trace(const std::string& kind, const SyntheticOptions& options);

}  // namespace gapless::bench
