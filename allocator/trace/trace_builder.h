// build_trace: the events of one device of a PyTorch snapshot, as a trace.
//
//   alloc 0x100, free 0x900, alloc 0x100  ->  alloc 0 (initial: its free was seen, 0x900)
//                                             alloc 1, free 0, alloc 2 (the free of 1 was lost)
//
// Blocks get numbers, and those that were live before the first event are found: by frees of what
// was never allocated, and by what is active at the end and no event speaks of.
#pragma once

#include <vector>

#include "allocator/trace/snapshot.h"
#include "allocator/trace/stack_reader.h"

namespace gapless {

/// `segments`: the device's. `entries`: its list in "device_traces". The trace has no `stacks` yet.
/// Throws InputError.
Trace build_trace(const SnapshotFields& fields, StackReader& stacks, const Snapshot& snapshot,
                  const std::vector<const SnapshotSegment*>& segments, DeviceIndex device,
                  const std::vector<PickleValue>& entries);

}  // namespace gapless
