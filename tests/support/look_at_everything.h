// All that reports make of a recording, for tests that only ask whether they can.
#pragma once

#include "allocator/report/fragmentation.h"
#include "allocator/report/growths.h"
#include "allocator/report/leaks.h"
#include "allocator/report/lost_memory.h"
#include "allocator/report/memory_kinds.h"
#include "allocator/report/moment.h"

namespace gapless::testing {

/// Whether what reports say adds up: of each of some moments what is free, live and pending is what
/// is in segments.
inline bool adds_up(const Trace& trace) {
  if (trace.events.empty()) return true;
  const Moments moments = find_moments(trace);
  const MemoryKinds kinds = memory_kinds(trace);
  (void)find_leaks(trace);
  (void)find_growths(trace);
  (void)course_of(trace, 100);
  if (kinds.of_block.size() != trace.blocks) return false;
  for (const std::size_t event : {std::size_t{0}, moments.peak, trace.events.size() - 1}) {
    const MemoryState state = state_at(trace, event);
    const MemorySum total = analyze(state).total;
    if (total.active_bytes + total.free_bytes != total.reserved_bytes) return false;
    const LostMemory lost = lost_memory(state);
    std::uint64_t parts = 0;
    for (const LostMemory::Part& part : lost.parts) parts += part.bytes;
    if (parts != lost.free_bytes) return false;
  }
  return true;
}

}  // namespace gapless::testing
