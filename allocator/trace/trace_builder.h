// TraceBuilder: the events of one device of a PyTorch snapshot, as a trace.
//
//   alloc 0x100, free 0x900, alloc 0x100  ->  alloc 0 (initial: its free was seen, 0x900)
//                                             alloc 1, free 0, alloc 2 (the free of 1 was lost)
//
// Blocks get numbers, and those that were live before the first event are found: by frees of what
// was never allocated, and by what is active at the end and no event speaks of.
#pragma once

#include <memory>
#include <vector>

#include "allocator/trace/snapshot.h"
#include "allocator/trace/stack_reader.h"

namespace gapless {

using SegmentList = std::vector<const SnapshotSegment*>;

class TraceBuilder {
 public:
  /// `segments`: the device's. `events`: how many there will be. Throws InputError.
  TraceBuilder(const SnapshotFields& fields, StackReader& stacks, const Snapshot& snapshot,
               const SegmentList& segments, DeviceIndex device, std::uint64_t events);
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;
  ~TraceBuilder();

  /// The next of the device's list in "device_traces". Throws InputError.
  void add(const PickleValue& event, std::size_t index);
  /// The trace, without `stacks` yet. Throws InputError.
  Trace finish();

 private:
  class Builder;
  std::unique_ptr<Builder> builder_;
};

}  // namespace gapless
