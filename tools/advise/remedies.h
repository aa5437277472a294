// What would help, and what is lost by it.
//
//   gapless              nothing   tried: yes, 1.31 GiB left
//   checkpointing        time      about 9.4 GiB at best
//   batch 2 -> 1, twice  time      tried: no: 2.32 GiB asked in step 0
//
// A remedy has an estimate of the most that would be allocated, by what the trace says (what_if.h),
// and is tried where `advise` can change the run. Only what was tried may be said to fit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/advise/attempt.h"
#include "tools/advise/causes.h"

namespace gapless::tools {

enum class Lost { nothing, time, quality };
const char* name_of(Lost lost);

/// A run in which something was changed.
struct Trial {
  std::optional<bool> fits;
  std::string verdict;  // "yes", "yes, but 12 stalls", "no", "not known"
  std::string reason;
  std::uint64_t allocated_bytes = 0;  // the most on a GPU, at that process's peak
  std::uint64_t reserved_bytes = 0;
  std::optional<std::uint64_t> headroom_bytes;  // the least
  double seconds = 0;
};

struct Estimate {
  /// The most that would be allocated at once.
  std::uint64_t allocated_bytes = 0;
  bool at_best = false;  // no less than that: how much more is not known
  std::string how;
};

struct Remedy {
  std::string id;    // "allocator", "checkpointing", ...: what --try takes
  std::string what;  // for people
  Lost lost = Lost::nothing;
  std::string loses;  // how much of it, where that is known
  std::string how;    // what a user does
  std::optional<Estimate> estimate;
  /// Changes a run; none where `advise` cannot, and then `why_not` says why.
  std::function<void(Attempt&)> change;
  std::string why_not;
  /// What is to be seen in the changed run, or it was not changed: a word of SIMGPU_CHANGE, or an
  /// option with its value.
  std::string hook;
  std::optional<std::pair<std::string, std::string>> option;
  std::optional<Trial> trial;
  /// More of the same, to be tried in this order where it is not enough: half of the batch again.
  std::vector<Remedy> more;
  /// Of which it is, and that were not: what each was and its verdict.
  std::vector<std::pair<std::string, std::string>> tried_before;
};

class Settings;

/// What --try takes.
std::vector<std::string> remedy_names();

/// Those that would help, by what is lost; none where the run that they are taken from was not
/// traced.
std::vector<Remedy> remedies_of(const Subject& needed, const Subject& as_is,
                                const Settings& settings);

}  // namespace gapless::tools
