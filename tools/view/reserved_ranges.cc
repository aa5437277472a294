#include "tools/view/reserved_ranges.h"

#include <algorithm>

#include "allocator/base/bytes.h"
#include "allocator/trace/segment_ranges.h"

namespace gapless::tools {
namespace {

// Blocks nearer to each other than this lie in one range where no segments are known.
constexpr std::uint64_t kNearBytes = 2 * MiB;

}  // namespace

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
