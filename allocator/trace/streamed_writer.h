// StreamedWriter: writes the streamed format (streamed_format.h) while a program runs.
//
//   event(0, alloc 2 MiB at 0x7f.., stream 5)    the block gets a number
//   event(0, free at 0x7f..)                     which its free has, too
//   flush()                                      a frame of names if any are new, then of events
//
// What it holds is what is live, the names, and the events that wait. Where events were lost it
// keeps the trace such that each block is allocated once and freed once: an address that is
// allocated again was freed, what is freed and was never seen is left out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "allocator/trace/streamed_format.h"
#include "allocator/trace/trace.h"

namespace gapless {

/// A device at the start of the recording.
struct StreamedDevice {
  std::string name;    // of the trace
  std::string source;  // what records it
  DeviceIndex device = 0;
  std::vector<TraceSegment> mapped;  // only address and bytes
};

/// An event as the allocator knows it: without numbers for what has a name.
struct StreamedEvent {
  EventKind kind = EventKind::alloc;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
  std::uint32_t pool_creator = 0;  // the pool's id; zeros: the default pool
  std::uint32_t pool_number = 0;
  std::uint64_t time_us = 0;
  std::uint32_t stack = 0;  // a node of the stacks; 0: unknown
};

class StreamedWriter {
 public:
  /// `sink` writes what it is given as a whole, or throws.
  explicit StreamedWriter(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {}

  /// Once, before all else. `initial`: of each device the blocks that live already.
  void begin(const std::vector<StreamedDevice>& devices,
             const std::vector<std::vector<StreamedEvent>>& initial);
  void event(std::size_t trace, const StreamedEvent& event);
  /// So many events of the device were lost here.
  void lost(std::size_t trace, std::uint64_t events);
  /// Stacks that are new: they get the next numbers.
  void add_stacks(const std::vector<std::string>& frames,
                  const std::vector<CallStacks::Node>& nodes);
  /// Writes frames that are full; events may name only stacks that were added before.
  void write_full();
  /// Writes what is waiting.
  void flush();
  /// flush(), and the recording was ended.
  void end();

  /// The bytes that live now of each stack, by its node, over all devices.
  [[nodiscard]] const std::unordered_map<std::uint32_t, std::uint64_t>& live_by_stack() const {
    return live_by_stack_;
  }
  [[nodiscard]] std::uint64_t events() const { return events_; }

 private:
  struct Live {
    std::uint32_t block = 0;
    std::uint16_t stream = 0;
    std::uint8_t pool = 0;
    std::uint32_t stack = 0;
    std::uint64_t bytes = 0;
  };
  struct OfTrace {
    std::unordered_map<std::uint64_t, Live> live;  // by address
    std::unordered_map<std::uint64_t, std::uint16_t> streams;
    std::unordered_map<std::uint64_t, std::uint8_t> pools;  // by both numbers of the id
    std::vector<TraceEvent> waiting;
    std::uint32_t blocks = 0;
  };
  std::uint16_t stream_index(std::size_t trace, std::uint64_t handle);
  std::uint8_t pool_index(std::size_t trace, const StreamedEvent& event);
  std::uint32_t site_index(std::uint32_t stack);
  void alloc(std::size_t trace, const StreamedEvent& event, TraceEvent& made);
  void free(std::size_t trace, std::unordered_map<std::uint64_t, Live>::iterator at,
            TraceEvent made);
  void push(std::size_t trace, const TraceEvent& event);
  void write_frame(StreamedFrame kind, std::uint32_t trace, std::string_view raw);
  void write_names();
  void write_events(std::size_t trace);

  std::function<void(std::string_view)> sink_;
  std::vector<OfTrace> traces_;
  std::unordered_map<std::uint32_t, std::uint32_t> sites_;  // by node
  std::unordered_map<std::uint32_t, std::uint64_t> live_by_stack_;
  std::uint64_t events_ = 0;
  // New since the last frame of names.
  std::vector<std::pair<std::size_t, std::uint64_t>> new_streams_;
  std::vector<std::pair<std::size_t, std::string>> new_pools_;
  std::vector<std::pair<std::size_t, std::uint64_t>> new_lost_;
  std::vector<std::string> new_frames_;
  std::vector<CallStacks::Node> new_nodes_;
  std::vector<std::uint32_t> new_sites_;
};

}  // namespace gapless
