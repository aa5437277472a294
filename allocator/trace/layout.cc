#include "allocator/trace/layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "allocator/base/bytes.h"
#include "allocator/base/range_set.h"

namespace gapless {
namespace {

constexpr std::uint64_t kBase = TiB;  // of what is laid out here: no address of a recording's

bool is_block_event(EventKind kind) {
  return kind == EventKind::alloc || kind == EventKind::free_requested || kind == EventKind::free;
}
std::uint64_t end_of(std::uint64_t address, std::uint64_t bytes) {
  return address + std::min(std::max<std::uint64_t>(bytes, 1), UINT64_MAX - address);
}

// Whether no two blocks lie at one place at one time.
bool addresses_fit(const Trace& trace) {
  std::map<std::uint64_t, std::uint64_t> live;  // begin -> end
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::free) live.erase(event.address);
    if (event.kind != EventKind::alloc) continue;
    const std::uint64_t end = end_of(event.address, event.bytes);
    const auto next = live.lower_bound(event.address);
    if (next != live.end() && next->first < end) return false;
    if (next != live.begin() && std::prev(next)->second > event.address) return false;
    live.emplace_hint(next, event.address, end);
  }
  return true;
}

// Gives out a range of addresses, the tightest hole first; it grows at its end.
class BestFit {
 public:
  std::uint64_t take(std::uint64_t bytes) {
    const auto hole = by_size_.lower_bound({bytes, 0});
    if (hole == by_size_.end()) {
      std::uint64_t at = end_;
      if (!holes_.empty()) {  // the last hole may reach to the end
        const auto [address, size] = *holes_.rbegin();
        if (address + size == end_) {
          remove(address, size);
          at = address;
        }
      }
      end_ = at + bytes;
      return at;
    }
    const auto [size, address] = *hole;
    remove(address, size);
    if (size > bytes) add(address + bytes, size - bytes);
    return address;
  }
  void give_back(std::uint64_t address, std::uint64_t bytes) {
    auto next = holes_.lower_bound(address);
    if (next != holes_.end() && next->first == address + bytes) {
      const auto [at, size] = *next;
      remove(at, size);
      bytes += size;
    }
    next = holes_.lower_bound(address);
    if (next != holes_.begin()) {
      const auto [at, size] = *std::prev(next);
      if (at + size == address) {
        remove(at, size);
        address = at;
        bytes += size;
      }
    }
    add(address, bytes);
  }
  [[nodiscard]] std::uint64_t end() const { return end_; }

 private:
  void add(std::uint64_t address, std::uint64_t bytes) {
    holes_.emplace(address, bytes);
    by_size_.emplace(bytes, address);
  }
  void remove(std::uint64_t address, std::uint64_t bytes) {
    holes_.erase(address);
    by_size_.erase({bytes, address});
  }

  std::uint64_t end_ = 0;
  std::map<std::uint64_t, std::uint64_t> holes_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;
};

// What is reserved while a trace runs, as far as its segment events tell.
class Reserved {
 public:
  /// Begins with what is given back though it was never asked for.
  explicit Reserved(const Trace& trace) {
    std::vector<TraceEvent> before;
    for (const TraceEvent& event : trace.events) {
      if (!step(event)) before.push_back(event);
    }
    whole_.clear();
    mapped_.clear();
    for (TraceEvent event : before) {
      event.kind =
          event.kind == EventKind::segment_free ? EventKind::segment_alloc : EventKind::segment_map;
      (void)step(event);
    }
  }

  /// False where it gives back what is not there.
  bool step(const TraceEvent& event) {
    const std::uint64_t end = end_of(event.address, event.bytes);
    switch (event.kind) {
      case EventKind::segment_alloc:
        whole_.insert_or_assign(event.address, event);
        return true;
      case EventKind::segment_free: {
        const auto found = whole_.find(event.address);
        if (found == whole_.end() || found->second.bytes != event.bytes) return false;
        whole_.erase(found);
        return true;
      }
      case EventKind::segment_map:
        mapped_.add(event.address, end);
        mapped_by_ = event;
        return true;
      case EventKind::segment_unmap: {
        const auto inside = mapped_.inside(event.address, end);
        mapped_.remove(event.address, end);
        return inside.size() == 1 && inside[0].bytes() == end - event.address;
      }
      default:
        return true;
    }
  }

  [[nodiscard]] bool covers(std::uint64_t address, std::uint64_t bytes) const {
    const std::uint64_t end = end_of(address, bytes);
    const auto next = whole_.upper_bound(address);
    if (next != whole_.begin()) {
      const TraceEvent& segment = std::prev(next)->second;
      if (end <= end_of(segment.address, segment.bytes)) return true;
    }
    const auto inside = mapped_.inside(address, end);
    return inside.size() == 1 && inside[0].bytes() == end - address;
  }

  void put(std::vector<TraceLayout::Segment>& segments) const {
    const auto type_of = [](std::uint64_t bytes) { return bytes <= 2 * MiB ? "small" : "large"; };
    for (const auto& [address, event] : whole_) {
      segments.push_back(
          {.range = {address, event.bytes, event.stream, event.pool, false, type_of(event.bytes)}});
    }
    for (const RangeSet::Range& range : mapped_.inside(0, UINT64_MAX)) {
      segments.push_back({.range = {range.begin, range.bytes(), mapped_by_.stream, mapped_by_.pool,
                                    true, type_of(range.bytes())}});
    }
  }

 private:
  std::map<std::uint64_t, TraceEvent> whole_;  // by address
  RangeSet mapped_;
  TraceEvent mapped_by_;  // the last of them, whose stream and pool stand for all
};

class Layouter {
 public:
  explicit Layouter(const Trace& trace) : trace_(trace), reserved_(trace) {}

  TraceLayout run() {
    if (trace_.has_segments) {
      for (const TraceSegment& segment : trace_.segments) {
        layout_.segments.push_back({.range = segment});
      }
    } else {
      layout_.segments_added = true;
      if (!addresses_fit(trace_)) {
        place_blocks();
      } else {
        give_own_segments();
      }
      for (const TraceEvent& event : trace_.events) (void)reserved_.step(event);
      reserved_.put(layout_.segments);
    }
    std::stable_sort(layout_.segments.begin(), layout_.segments.end(),
                     [](const TraceLayout::Segment& a, const TraceLayout::Segment& b) {
                       return a.range.address < b.range.address;
                     });
    put_live_blocks();
    return std::move(layout_);
  }

 private:
  // All blocks in one segment, which was there from the begin.
  void place_blocks() {
    layout_.addresses_added = true;
    layout_.addresses.assign(trace_.blocks, 0);
    std::vector<std::uint64_t> bytes(trace_.blocks, 0);
    BestFit fit;
    for (const TraceEvent& event : trace_.events) {
      if (event.kind == EventKind::alloc) {
        bytes[event.block] = std::max(kBlockGrain, align_up(event.bytes, kBlockGrain));
        layout_.addresses[event.block] = kBase + fit.take(bytes[event.block]);
      } else if (event.kind == EventKind::free) {
        fit.give_back(layout_.addresses[event.block] - kBase, bytes[event.block]);
      }
    }
    if (fit.end() == 0) return;
    layout_.segments.push_back(
        {.range = {.address = kBase, .bytes = fit.end(), .type = kBestFitSegment}});
    if (trace_.initial_events != 0) return;  // there, as those blocks were
    layout_.added.push_back({.at = 0,
                             .event = {.kind = EventKind::segment_alloc,
                                       .bytes = fit.end(),
                                       .address = kBase,
                                       .time_us = trace_.events.front().time_us}});
  }

  // A segment for each block that lies in none.
  void give_own_segments() {
    Reserved reserved = reserved_;
    std::vector<std::optional<TraceEvent>> own(trace_.blocks);
    for (std::uint64_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& event = trace_.events[i];
      (void)reserved.step(event);
      if (event.kind == EventKind::alloc && !reserved.covers(event.address, event.bytes)) {
        own[event.block] = event;
        own[event.block]->bytes = std::max<std::uint64_t>(event.bytes, 1);
        if (i >= trace_.initial_events) add(i, EventKind::segment_alloc, *own[event.block]);
      } else if (event.kind == EventKind::free && own[event.block]) {
        TraceEvent segment = *own[event.block];
        segment.time_us = event.time_us;
        add(i, EventKind::segment_free, segment);
        own[event.block].reset();
      }
    }
    for (const auto& segment : own) {
      if (!segment) continue;
      layout_.segments.push_back({.range = {segment->address, segment->bytes, segment->stream,
                                            segment->pool, false, kOneBlockSegment}});
    }
  }

  void add(std::uint64_t at, EventKind kind, TraceEvent segment) {
    segment.kind = kind;
    segment.block = 0;
    layout_.added.push_back({.at = at, .event = segment});
  }

  void put_live_blocks() {
    std::map<std::uint64_t, TraceLayout::LiveBlock> live;  // by address
    for (const TraceEvent& event : trace_.events) {
      if (!is_block_event(event.kind)) continue;
      const std::uint64_t address = layout_.address_of(event);
      if (event.kind == EventKind::alloc) {
        live.insert_or_assign(address,
                              TraceLayout::LiveBlock{address, 0, event.bytes, event.site, false});
      } else if (event.kind == EventKind::free) {
        live.erase(address);
      } else if (const auto found = live.find(address); found != live.end()) {
        found->second.pending = true;
      }
    }
    auto next = live.begin();
    for (TraceLayout::Segment& segment : layout_.segments) {
      const std::uint64_t end = end_of(segment.range.address, segment.range.bytes);
      while (next != live.end() && next->first < segment.range.address) ++next;
      for (; next != live.end() && next->first < end; ++next) {
        const auto behind = std::next(next);
        const std::uint64_t most =
            (behind == live.end() ? end : std::min(end, behind->first)) - next->first;
        TraceLayout::LiveBlock block = next->second;
        block.bytes = std::min(
            most, align_up(std::max<std::uint64_t>(block.requested_bytes, 1), kBlockGrain));
        block.requested_bytes = std::min(block.requested_bytes, block.bytes);
        segment.blocks.push_back(block);
      }
    }
  }

  const Trace& trace_;
  Reserved reserved_;  // at the begin, then at the end
  TraceLayout layout_;
};

}  // namespace

TraceLayout lay_out(const Trace& trace) { return Layouter(trace).run(); }

}  // namespace gapless
