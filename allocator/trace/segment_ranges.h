// SegmentRanges: which addresses have memory, as segments come and go.
//
//   add [0, 8 MiB) expandable     remove [2, 4)     ->  [0, 2)  [4, 8)
//   add [2, 4) expandable                           ->  [0, 8)  joined
//
// What was there before a trace begins follows from its end, each event undone, or from the most
// that there was.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

/// Whether an event of that kind brings memory (1), takes it (-1), or neither (0).
int reserved_sign(EventKind kind);

/// What was reserved before the first event. Nothing where the trace does not tell, or where its
/// segments and its events contradict each other.
std::optional<std::uint64_t> reserved_at_start(const Trace& trace);

class SegmentRanges {
 public:
  SegmentRanges() = default;
  explicit SegmentRanges(const std::vector<TraceSegment>& segments) {
    for (const TraceSegment& segment : segments) add(segment);
  }

  void add(const TraceSegment& segment);
  /// Cuts [address, address + bytes) out of whatever holds it.
  void remove(std::uint64_t address, std::uint64_t bytes);
  /// What the event did; others do nothing.
  void apply(const TraceEvent& event);
  /// The same backwards.
  void undo(const TraceEvent& event);

  [[nodiscard]] std::size_t size() const { return ranges_.size(); }
  /// By address; what an expandable segment was mapped in is joined.
  [[nodiscard]] std::vector<TraceSegment> joined() const;

 private:
  std::map<std::uint64_t, TraceSegment> ranges_;
};

}  // namespace gapless
