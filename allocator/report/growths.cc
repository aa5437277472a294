#include "allocator/report/growths.h"

#include <unordered_set>

#include "allocator/base/bytes.h"
#include "allocator/report/moment.h"

namespace gapless {

Growths find_growths(const Trace& trace) {
  Growths growths;
  std::unordered_set<std::uint64_t> sizes;
  const std::uint64_t first = trace.initial_events;
  const std::uint64_t half = first + (trace.events.size() - first) / 2;
  MomentWalk walk(trace);
  MemorySums before = walk.sums();
  while (walk.next()) {
    const TraceEvent& event = trace.events[walk.event()];
    if (event.kind == EventKind::segment_alloc || event.kind == EventKind::segment_map) {
      ++growths.times;
      growths.bytes += event.bytes;
      if (before.reserved_bytes >= before.active_bytes + event.bytes) {
        ++growths.needless_times;
        growths.needless_bytes += event.bytes;
      }
    } else if (event.kind == EventKind::alloc && event.bytes > MiB && walk.event() >= first) {
      const std::uint64_t bytes = rounded_bytes(event.bytes);
      if (walk.event() < half) {
        sizes.insert(bytes);
      } else {
        ++growths.large_requests;
        if (!sizes.contains(bytes)) ++growths.new_sizes;
      }
    }
    before = walk.sums();
  }
  return growths;
}

}  // namespace gapless
