// MomentReport: one device of a recording, looked at one moment of it: all that `gapless inspect`
// says, before it is text or JSON.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "allocator/report/fragmentation.h"
#include "allocator/report/growths.h"
#include "allocator/report/leaks.h"
#include "allocator/report/lost_memory.h"
#include "allocator/report/moment.h"
#include "tools/inspect/cures.h"
#include "tools/inspect/groups.h"

namespace gapless::tools {

/// Which moment was asked for.
struct MomentChoice {
  enum class Kind : std::uint8_t { best, peak, end, oom, event };
  Kind kind = Kind::best;  // the request it ended with, or else the peak
  std::uint64_t event = 0;
};

struct Finding {
  std::string cause;  // "pinned_segments", ...: a word for programs
  std::string text;   // a sentence or two
};

struct MomentReport {
  MemoryState state;
  Fragmentation fragmentation;
  LostMemory lost;
  std::vector<BlockGroup> kinds;  // empty where there are no events
  std::vector<BlockGroup> groups;
  /// What follows is of recordings with events.
  bool has_events = false;
  std::string at = "now";  // "peak", "end", "oom", "event"
  std::size_t event = 0;
  DeviceIndex device = 0;
  bool several_devices = false;
  MemorySums sums;  // at that moment
  Moments moments;
  Growths growths;
  std::vector<Leak> leaks;
  std::optional<std::vector<std::size_t>> step_ends;  // where groups are by lifetime
  std::vector<MemorySums> course;
  std::vector<std::string> warnings;
  std::optional<RecordedRun> run;  // with its trace
  bool reserved_known = true;
  bool segments_known = true;  // else what is free is known by its sum alone
  CureWork work;               // what was tried
  bool too_long = false;       // what was not asked to be left out was, since it takes long
  std::vector<Cure> cures;     // empty where none was
  std::vector<Finding> findings;
};

struct MomentOptions {
  MomentChoice at;
  GroupBy by = GroupBy::site;
  std::size_t blocks = 10;
  std::vector<KindRule> rules;
  std::optional<CureWork> work;  // nothing: what is affordable
  std::function<void(const std::string& name, double)> progress;
};

/// Of a state without events.
MomentReport report_state(MemoryState state, const MomentOptions& options);

/// Of one device of a recording; `now` is the state at its end where the file tells it exactly.
/// Throws InputError where the moment asked for is not in it.
MomentReport report_moment(Trace trace, const std::optional<MemoryState>& now,
                           const MomentOptions& options);

}  // namespace gapless::tools
