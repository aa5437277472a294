// Traces of programs whose sizes never repeat: the hard case for an allocator that learns.
//
//   varlen   training of a transformer whose sequences have another length in every step
//   moe      training with experts, each given another number of tokens in every step
//   serve    requests of random length come and go; their key-value caches grow by concatenation
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
};

/// "varlen", "moe", "serve".
std::vector<std::string> synthetic_kinds();

/// Throws std::invalid_argument for an unknown kind.
Trace synthetic_trace(const std::string& kind, const SyntheticOptions& options);

}  // namespace gapless::bench
