#include "allocator/trace/trace.h"

#include <algorithm>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"

namespace gapless {

const char* to_string(EventKind kind) {
  switch (kind) {
    case EventKind::alloc:
      return "alloc";
    case EventKind::free_requested:
      return "free_requested";
    case EventKind::free:
      return "free";
    case EventKind::segment_alloc:
      return "segment_alloc";
    case EventKind::segment_free:
      return "segment_free";
    case EventKind::segment_map:
      return "segment_map";
    case EventKind::segment_unmap:
      return "segment_unmap";
    case EventKind::oom:
      return "oom";
    case EventKind::marker:
      return "marker";
  }
  return "unknown";
}

std::uint64_t Trace::operations() const {
  return static_cast<std::uint64_t>(
      std::count_if(events.begin(), events.end(), [](const TraceEvent& event) {
        return event.kind == EventKind::alloc || event.kind == EventKind::free;
      }));
}

std::vector<std::string_view> Trace::frames_of(std::uint32_t site) const {
  std::vector<std::string_view> frames;
  if (stacks == nullptr || site >= site_stacks.size()) return frames;
  for (const std::uint32_t frame : stacks->frames_of(site_stacks[site])) {
    frames.emplace_back(stacks->frames[frame]);
  }
  return frames;
}

std::uint64_t peak_live_bytes(const Trace& trace, std::uint64_t grain) {
  std::vector<std::uint64_t> size(trace.blocks, 0);
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::alloc) {
      size[event.block] = align_up(event.bytes, grain);
      live += size[event.block];
      peak = std::max(peak, live);
    } else if (event.kind == EventKind::free) {
      live -= size[event.block];
      size[event.block] = 0;
    }
  }
  return peak;
}

void check_trace(const Trace& trace, const std::string& file) {
  constexpr std::uint64_t kFreed = UINT64_MAX;
  constexpr std::uint64_t kUnseen = kFreed - 1;
  std::vector<std::uint64_t> live_bytes(trace.blocks, kUnseen);
  std::uint64_t live = 0;
  for (const TraceSegment& segment : trace.segments) {
    if (segment.stream >= trace.streams.size() || segment.pool >= trace.pools.size()) {
      throw InputError(file.empty() ? trace.name : file, "segments",
                       "a stream or pool that the header does not list");
    }
  }
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    const auto fail = [&](const char* cause) {
      throw InputError(file.empty() ? trace.name : file, "event " + std::to_string(i), cause);
    };
    if (event.stream >= trace.streams.size()) fail("a stream that the header does not list");
    if (event.pool >= trace.pools.size()) fail("a pool that the header does not list");
    if (event.site >= trace.sites.size()) fail("a call site that the header does not list");
    switch (event.kind) {
      case EventKind::alloc:
      case EventKind::free_requested:
      case EventKind::free:
        break;
      case EventKind::segment_alloc:
      case EventKind::segment_free:
      case EventKind::segment_map:
      case EventKind::segment_unmap:
        if (event.bytes > kMostTraceBytes) fail("a segment of more than 1 PiB");
        continue;
      default:
        continue;
    }
    if (event.block >= trace.blocks) fail("a block number out of range");
    std::uint64_t& block = live_bytes[event.block];
    if (event.kind == EventKind::alloc) {
      if (block != kUnseen) fail("a block is allocated twice");
      if (event.bytes > kMostTraceBytes) fail("an allocation of more than 1 PiB");
      block = event.bytes;
      live += block;
      if (live > kMostTraceBytes) fail("more than 1 PiB is live at once");
    } else {
      if (block >= kUnseen) fail("a block is freed that is not live");
      if (event.kind != EventKind::free) continue;
      live -= block;
      block = kFreed;
    }
  }
}

}  // namespace gapless
