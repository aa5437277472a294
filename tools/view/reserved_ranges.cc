#include "tools/view/reserved_ranges.h"

#include <algorithm>

#include "allocator/base/bytes.h"
#include "allocator/trace/segment_ranges.h"

namespace gapless::tools {
namespace {

// Blocks nearer to each other than this lie in one range where no segments are known.
constexpr std::uint64_t kNearBytes = 2 * MiB;

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

std::optional<std::uint64_t> reserved_at_start(const Trace& trace) {
  return trace.has_segments ? undone_from_end(trace) : under_recorded_peak(trace);
}

std::vector<AddressRange> ranges_of(const Trace& trace) {
  std::vector<AddressRange> all;
  const auto add = [&](std::uint64_t address, std::uint64_t bytes) {
    if (bytes != 0 && address != 0) all.push_back({address, std::min(bytes, UINT64_MAX - address)});
  };
  const bool segments_known = trace.has_segments || trace.starts_empty;
  for (const TraceSegment& segment : trace.segments) {
    add(segment.address, segment.bytes);
  }
  for (const TraceEvent& event : trace.events) {
    if (reserved_sign(event.kind) != 0) {
      add(event.address, event.bytes);
    } else if (event.kind == EventKind::alloc && event.bytes <= kMostTraceBytes) {
      add(event.address, align_up(std::max<std::uint64_t>(event.bytes, 1), 512));
    }
  }
  const std::uint64_t near_bytes = segments_known ? 0 : kNearBytes;
  std::sort(all.begin(), all.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.address < b.address; });
  std::vector<AddressRange> joined;
  for (const AddressRange& range : all) {
    const std::uint64_t end = joined.empty() ? 0 : joined.back().address + joined.back().bytes;
    if (joined.empty() || (range.address > end && range.address - end > near_bytes)) {
      joined.push_back(range);
      continue;
    }
    AddressRange& last = joined.back();
    last.bytes = std::max(last.bytes, range.address - last.address + range.bytes);
  }
  return joined;
}

}  // namespace gapless::tools
