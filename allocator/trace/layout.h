// TraceLayout: where the blocks of a trace lie, at any time inside of segments, for formats that
// demand it.
//
//   segments recorded      as they are
//   addresses only         a block that lies in no segment known has one of its own while it lives
//   neither                one segment, blocks in it by best fit:   base [ 0 | 1 |   | 3 |      ]
//
// What was not recorded is marked, so that a reader of ours leaves it out again.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

struct TraceLayout {
  struct LiveBlock {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;  // rounded up to 512 where there is room
    std::uint64_t requested_bytes = 0;
    std::uint32_t site = 0;
    bool pending = false;  // given up, but not free yet
  };
  /// What was reserved at the end, with its live blocks by address.
  struct Segment {
    TraceSegment range;
    std::vector<LiveBlock> blocks = {};
  };
  /// A segment_alloc right before an event or a segment_free right after it.
  struct AddedEvent {
    std::uint64_t at = 0;  // index into Trace::events
    TraceEvent event;
  };

  bool segments_added = false;           // the trace does not say what was reserved
  bool addresses_added = false;          // nor where its blocks lay
  std::vector<std::uint64_t> addresses;  // by block, where they were added
  std::vector<AddedEvent> added;         // by `at`
  std::vector<Segment> segments;         // by address

  /// Where the block of an alloc, free_requested or free lies.
  [[nodiscard]] std::uint64_t address_of(const TraceEvent& event) const {
    return addresses_added ? addresses[event.block] : event.address;
  }
};

/// The type of segments that were added.
inline constexpr const char* kOneBlockSegment = "added by gapless: one block";
inline constexpr const char* kBestFitSegment = "added by gapless: best fit";

/// The trace is one that check_trace() has nothing against.
TraceLayout lay_out(const Trace& trace);

}  // namespace gapless
