#include "allocator/trace/segment_ranges.h"

#include <algorithm>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

constexpr std::uint64_t kSmallSegment = 2 * MiB;  // PyTorch's; it has no large one of that size

TraceSegment segment_of(const TraceEvent& event) {
  return {event.address,
          event.bytes,
          event.stream,
          event.pool,
          event.kind == EventKind::segment_map || event.kind == EventKind::segment_unmap,
          event.bytes <= kSmallSegment ? "small" : "large"};
}

// From what was reserved at the end, backwards.
std::optional<std::uint64_t> undone_from_end(const Trace& trace) {
  std::uint64_t reserved = 0;
  for (const TraceSegment& segment : trace.segments) {
    if (segment.bytes > kMostTraceBytes - reserved) return {};
    reserved += segment.bytes;
  }
  for (auto event = trace.events.rbegin(); event != trace.events.rend(); ++event) {
    const int sign = reserved_sign(event->kind);
    if (sign > 0) {
      if (event->bytes > reserved) return {};
      reserved -= event->bytes;
    } else if (sign < 0) {
      if (event->bytes > kMostTraceBytes - reserved) return {};
      reserved += event->bytes;
    }
  }
  return reserved;
}

// The most that the events add to what was there at the start. Nothing where they take more than
// there was.
std::optional<std::uint64_t> most_added(const Trace& trace, std::uint64_t start) {
  std::uint64_t reserved = start;
  std::uint64_t most = start;
  for (const TraceEvent& event : trace.events) {
    const int sign = reserved_sign(event.kind);
    if (sign > 0) {
      if (event.bytes > kMostTraceBytes - std::min(reserved, kMostTraceBytes)) return {};
      reserved += event.bytes;
      most = std::max(most, reserved);
    } else if (sign < 0) {
      if (event.bytes > reserved) return {};
      reserved -= event.bytes;
    }
  }
  return most - start;
}

// From the greatest amount, which the recording tells even where it does not tell the segments.
std::optional<std::uint64_t> under_recorded_peak(const Trace& trace) {
  const std::uint64_t peak = trace.recorded_peak_reserved_bytes;
  if (trace.starts_empty)
    return most_added(trace, 0) ? std::optional<std::uint64_t>(0) : std::nullopt;
  if (peak == 0 || peak > kMostTraceBytes) return {};
  // With so much at the start no event takes more than there is, and what they add is the same.
  const std::optional<std::uint64_t> added = most_added(trace, peak);
  if (!added || *added > peak || !most_added(trace, peak - *added)) return {};
  return peak - *added;
}

}  // namespace

int reserved_sign(EventKind kind) {
  switch (kind) {
    case EventKind::segment_alloc:
    case EventKind::segment_map:
      return 1;
    case EventKind::segment_free:
    case EventKind::segment_unmap:
      return -1;
    default:
      return 0;
  }
}

std::optional<std::uint64_t> reserved_at_start(const Trace& trace) {
  return trace.has_segments ? undone_from_end(trace) : under_recorded_peak(trace);
}

void SegmentRanges::add(const TraceSegment& segment) {
  if (segment.bytes != 0) ranges_.insert_or_assign(segment.address, segment);
}

void SegmentRanges::remove(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t end = address + bytes;
  auto at = ranges_.upper_bound(address);
  if (at != ranges_.begin()) --at;
  while (at != ranges_.end() && at->first < end) {
    const TraceSegment whole = at->second;
    const std::uint64_t whole_end = whole.address + whole.bytes;
    if (whole_end <= address) {
      ++at;
      continue;
    }
    at = ranges_.erase(at);
    if (whole.address < address) {
      TraceSegment before = whole;
      before.bytes = address - whole.address;
      ranges_.emplace(before.address, before);
    }
    if (whole_end > end) {
      TraceSegment after = whole;
      after.address = end;
      after.bytes = whole_end - end;
      at = ranges_.emplace(end, after).first;
    }
  }
}

void SegmentRanges::apply(const TraceEvent& event) {
  const int sign = reserved_sign(event.kind);
  if (sign > 0) add(segment_of(event));
  if (sign < 0) remove(event.address, event.bytes);
}

void SegmentRanges::undo(const TraceEvent& event) {
  const int sign = reserved_sign(event.kind);
  if (sign > 0) remove(event.address, event.bytes);
  if (sign < 0) add(segment_of(event));
}

std::vector<TraceSegment> SegmentRanges::joined() const {
  std::vector<TraceSegment> all;
  for (const auto& [address, range] : ranges_) {
    if (!all.empty()) {
      TraceSegment& last = all.back();
      if (last.expandable && range.expandable && last.address + last.bytes == address &&
          last.stream == range.stream && last.pool == range.pool) {
        // Of what was mapped in one go and is no more than a page nobody knows the pool.
        if (range.type == "large") last.type = range.type;
        last.bytes += range.bytes;
        continue;
      }
    }
    all.push_back(range);
  }
  return all;
}

}  // namespace gapless
