// Snapshot: PyTorch's torch.cuda.memory._dump_snapshot(), as typed data.
//
//   segment 0x7f..00  [ active_allocated 1 MiB | inactive 3 MiB | active_pending_free ... ]
//   device_traces[0]  alloc, free_requested, free_completed, segment_alloc, ...
//
// All variants of the schema since 2022 are read: with and without time_us, compile_context,
// user_metadata, external_annotations, allocator_settings, pool ids; segments without traces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

class PickleDocument;

/// The key of a snapshot's lists of events, one for each device.
inline constexpr std::string_view kDeviceTraces = "device_traces";

struct SnapshotBlock {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t requested_bytes = 0;
  bool allocated = false;     // active_allocated
  bool pending_free = false;  // active_pending_free (active_awaiting_free)
  std::string site;           // call_site(); empty where unknown
  std::uint32_t stack = 0;    // the node of its stack
};

struct SnapshotSegment {
  DeviceIndex device = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
  std::string type;  // "small" or "large"
  std::string pool;  // "(0, 0)" is the default pool
  bool expandable = false;
  std::vector<SnapshotBlock> blocks;  // tile the segment
};

struct Snapshot {
  std::string name;
  std::vector<SnapshotSegment> segments;
  /// One trace per device with events; blocks live before the first event are rebuilt.
  std::vector<Trace> traces;
  /// By device, in a file of ours: what was added for viewers (snapshot_writer.h).
  struct Added {
    bool segments = false;
    bool addresses = false;
    bool sizes_of_frees = false;
    bool starts_empty = false;
    std::uint64_t recorded_peak_reserved_bytes = 0;
    std::string source;  // Trace::source
  };
  std::vector<Added> added;
};

/// `still_devices`: with a trace, too, of each device that has segments but no events: what is live
/// there was so all along. Throws InputError that names file, place and cause.
Snapshot read_snapshot(const PickleDocument& document, bool still_devices = false);

}  // namespace gapless
