#include "allocator/report/moment.h"

#include <algorithm>
#include <map>

#include "allocator/base/bytes.h"
#include "allocator/trace/segment_ranges.h"

namespace gapless {
namespace {

constexpr std::size_t kLongestSite = 1024;  // each block carries its own

std::vector<TraceSegment> segments_at(const Trace& trace, std::size_t event) {
  SegmentRanges ranges(trace.segments);
  if (!trace.has_segments) {  // from the begin
    for (std::size_t i = 0; i <= event && i < trace.events.size(); ++i) {
      ranges.apply(trace.events[i]);
    }
    return ranges.joined();
  }
  for (std::size_t i = trace.events.size(); i-- > event + 1;) ranges.undo(trace.events[i]);
  return ranges.joined();
}

struct PlacedBlock {
  const TraceEvent* made = nullptr;
  bool pending = false;
};

// What is live after that event, by address.
std::vector<PlacedBlock> blocks_at(const Trace& trace, std::size_t event) {
  std::vector<PlacedBlock> by_number(trace.blocks);
  for (std::size_t i = 0; i <= event && i < trace.events.size(); ++i) {
    const TraceEvent& one = trace.events[i];
    if (one.kind == EventKind::alloc) by_number[one.block] = {&one, false};
    if (one.kind == EventKind::free_requested) by_number[one.block].pending = true;
    if (one.kind == EventKind::free) by_number[one.block] = {};
  }
  std::erase_if(by_number, [](const PlacedBlock& block) { return block.made == nullptr; });
  std::stable_sort(
      by_number.begin(), by_number.end(),
      [](const PlacedBlock& a, const PlacedBlock& b) { return a.made->address < b.made->address; });
  return by_number;
}

// Fills segments with blocks and with what is free between them.
class StateMaker {
 public:
  explicit StateMaker(const Trace& trace) : trace_(trace) {
    state_.name = trace.name;
    state_.source = trace.source;
  }

  MemoryState make(const std::vector<TraceSegment>& segments,
                   const std::vector<PlacedBlock>& blocks) {
    auto block = blocks.begin();
    for (const TraceSegment& from : segments) {
      while (block != blocks.end() && block->made->address < from.address) add_outside(*block++);
      StateSegment& segment = add_segment(from);
      const std::uint64_t end = from.address + from.bytes;
      std::uint64_t at = from.address;
      for (; block != blocks.end() && block->made->address < end; ++block) {
        if (block->made->address < at) {  // where another lies: the recording is not consistent
          outside_.push_back(*block);
          continue;
        }
        add_free(segment, at, block->made->address);
        StateBlock placed = to_state(*block);
        placed.bytes = std::min(placed.bytes, end - placed.address);
        at = placed.address + placed.bytes;
        segment.blocks.push_back(std::move(placed));
      }
      add_free(segment, at, end);
    }
    while (block != blocks.end()) add_outside(*block++);
    for (const PlacedBlock& one : outside_) add_outside(one);
    return std::move(state_);
  }

 private:
  StateSegment& add_segment(const TraceSegment& from) {
    StateSegment& segment = state_.segments.emplace_back();
    segment.device = trace_.device;
    segment.address = from.address;
    segment.bytes = from.bytes;
    segment.stream = trace_.streams[from.stream];
    segment.expandable = from.expandable;
    segment.pool = from.type.empty() ? "unknown" : from.type;
    if (from.pool != 0) segment.pool += " [" + trace_.pools[from.pool] + "]";
    return segment;
  }

  // A block of which no segment is known is one by itself.
  void add_outside(const PlacedBlock& block) {
    const TraceEvent& made = *block.made;
    const StateBlock placed = to_state(block);
    StateSegment& segment = add_segment(
        {placed.address, placed.bytes, made.stream, made.pool, false, "no segment recorded"});
    segment.blocks.push_back(placed);
  }

  [[nodiscard]] StateBlock to_state(const PlacedBlock& from) const {
    StateBlock block;
    block.kind = from.pending ? StateBlock::Kind::pending : StateBlock::Kind::live;
    block.address = from.made->address;
    block.bytes = rounded_bytes(from.made->bytes);
    block.requested_bytes = from.made->bytes;
    block.stream = trace_.streams[from.made->stream];
    const std::string& site = trace_.sites[from.made->site];
    block.site = site.substr(site.size() - std::min(site.size(), kLongestSite));
    block.number = from.made->block;
    return block;
  }

  void add_free(StateSegment& segment, std::uint64_t from, std::uint64_t to) const {
    if (from >= to) return;
    StateBlock hole;
    hole.address = from;
    hole.bytes = to - from;
    hole.stream = segment.stream;
    segment.blocks.push_back(hole);
  }

  const Trace& trace_;
  MemoryState state_;
  std::vector<PlacedBlock> outside_;
};

}  // namespace

std::uint64_t rounded_bytes(std::uint64_t requested_bytes) {
  return align_up(requested_bytes, kBlockGrain);
}

MomentWalk::MomentWalk(const Trace& trace) : trace_(trace), blocks_(trace.blocks) {
  sums_.reserved_bytes = reserved_at_start(trace).value_or(0);
}

bool MomentWalk::next() {
  if (next_ == trace_.events.size()) return false;
  const TraceEvent& event = trace_.events[next_++];
  switch (event.kind) {
    case EventKind::alloc:
      blocks_[event.block] = {event.bytes, false};
      sums_.requested_bytes += event.bytes;
      sums_.allocated_bytes += rounded_bytes(event.bytes);
      sums_.active_bytes += rounded_bytes(event.bytes);
      break;
    case EventKind::free_requested:
    case EventKind::free: {
      Block& block = blocks_[event.block];
      if (!block.requested_free) {
        sums_.requested_bytes -= block.requested_bytes;
        sums_.allocated_bytes -= rounded_bytes(block.requested_bytes);
        block.requested_free = true;
      }
      if (event.kind == EventKind::free) {
        sums_.active_bytes -= rounded_bytes(block.requested_bytes);
      }
      break;
    }
    case EventKind::segment_alloc:
    case EventKind::segment_map:
      sums_.reserved_bytes += event.bytes;
      break;
    case EventKind::segment_free:
    case EventKind::segment_unmap:
      sums_.reserved_bytes -= std::min(sums_.reserved_bytes, event.bytes);
      break;
    case EventKind::oom:
    case EventKind::marker:
      break;
  }
  return true;
}

Moments find_moments(const Trace& trace) {
  Moments found;
  MomentWalk walk(trace);
  bool first = true;
  while (walk.next()) {
    const MemorySums& sums = walk.sums();
    if (first || sums.active_bytes > found.at_peak.active_bytes) {
      found.peak = walk.event();
      found.at_peak = sums;
    }
    if (first || sums.reserved_bytes > found.at_reserved_peak.reserved_bytes) {
      found.reserved_peak = walk.event();
      found.at_reserved_peak = sums;
    }
    first = false;
    const EventKind kind = trace.events[walk.event()].kind;
    if (kind == EventKind::oom) {
      found.oom = walk.event();
      found.ended_with_oom = true;
    } else if (kind == EventKind::alloc) {
      found.ended_with_oom = false;
    }
  }
  found.at_end = walk.sums();
  return found;
}

bool tells_of_segments(const Trace& trace) {
  return trace.has_segments ||
         (trace.recorded_peak_reserved_bytes != 0 && reserved_at_start(trace) == 0);
}

MemoryState state_at(const Trace& trace, std::size_t event) {
  return StateMaker(trace).make(segments_at(trace, event), blocks_at(trace, event));
}

std::vector<MemorySums> course_of(const Trace& trace, std::size_t columns) {
  std::vector<MemorySums> course(std::min(columns, trace.events.size()));
  MomentWalk walk(trace);
  while (walk.next()) {
    MemorySums& most = course[walk.event() * course.size() / trace.events.size()];
    const MemorySums& sums = walk.sums();
    most.requested_bytes = std::max(most.requested_bytes, sums.requested_bytes);
    most.allocated_bytes = std::max(most.allocated_bytes, sums.allocated_bytes);
    most.active_bytes = std::max(most.active_bytes, sums.active_bytes);
    most.reserved_bytes = std::max(most.reserved_bytes, sums.reserved_bytes);
  }
  return course;
}

}  // namespace gapless
