// EventClock: when each event of a trace happened, for pictures over time.
//
//   recorded   -  1000  -  1500          unknown:   -  -  -  -
//   shown    1000 1000 1000 1500                    0  1  2  3     the numbers of the events
//
// In front, the one without a time is of a block that lived before.
#pragma once

#include <algorithm>
#include <cstdint>

#include "allocator/trace/trace.h"

namespace gapless {

class EventClock {
 public:
  explicit EventClock(const Trace& trace) {
    const auto first = std::find_if(trace.events.begin(), trace.events.end(),
                                    [](const TraceEvent& event) { return event.time_us != 0; });
    known_ = first != trace.events.end();
    if (known_ && trace.initial_events != 0) now_ = first->time_us;
  }

  /// Whether times are microseconds, and not the numbers of events.
  [[nodiscard]] bool known() const { return known_; }
  /// To be asked for one event after another.
  std::uint64_t at(std::uint64_t index, const TraceEvent& event) {
    if (!known_) {
      now_ = index;
    } else if (event.time_us != 0) {
      now_ = event.time_us;
    }
    return now_;
  }

 private:
  bool known_ = false;
  std::uint64_t now_ = 0;
};

}  // namespace gapless
