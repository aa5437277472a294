// Cures: what a recorded run would reserve and need, had it run with other settings. Each is tried:
// the recording is replayed with it.
//
//   as it is (native)               27.31 GiB reserved   26.98 GiB least capacity
//   expandable_segments:True        14.98                14.70
//   gapless                         13.70                13.67
//   without train.py:60             25.10                24.90     PyTorch's default, less that
//   line
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/recorded_run.h"

namespace gapless::tools {

struct Cure {
  std::string name;                  // for people: "max_split_size_mb:128"
  std::string allocator;             // as `gapless replay --allocator` has it
  std::string without;               // the call site whose blocks are left out, or empty
  std::uint64_t reserved_bytes = 0;  // at the peak of so many passes as `replay` makes
  std::uint64_t allocated_bytes = 0;
  std::optional<std::uint64_t> least_bytes;  // as `gapless fit` says; nothing where not tried
};

/// How much is tried: least capacities take some forty replays each.
struct CureWork {
  bool reserved = true;
  bool least = true;
};
/// What can be tried of that run in about a minute.
CureWork affordable(const Trace& trace);

/// The first is PyTorch's default, which the others are compared to. `sites`: the largest call
/// sites, each of which is left out once. `progress` gets 0 to 1, from several threads.
std::vector<Cure> try_cures(const RecordedRun& run, const std::vector<std::string>& sites,
                            const CureWork& work, const std::function<void(double)>& progress);

}  // namespace gapless::tools
