// Trace: what a program asked of one device's allocator, in order.
//
//   alloc  block 0   2097152 B  stream 0     (initial: live before the recording began)
//   alloc  block 1       512 B  stream 0
//   free   block 0
//
// Blocks are numbered in the order of their allocation, so a replay needs no look-up by address.
// `initial_events` events at the begin rebuild what was live, or waited, before the first recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/trace/call_stacks.h"

namespace gapless {

enum class EventKind : std::uint8_t {
  alloc = 0,
  free_requested = 1,  // the program gave it up
  free = 2,            // reusable from here on
  segment_alloc = 3,   // what the recorded allocator did with its driver
  segment_free = 4,
  segment_map = 5,
  segment_unmap = 6,
  oom = 7,     // a request that failed (unserved_requests.h): bytes as asked for
  marker = 8,  // a snapshot or an annotation
};
inline constexpr std::uint8_t kEventKinds = 9;

// What no recording exceeds: PyTorch numbers a process's devices in 7 bits, events number streams
// in 16 and pools in 8, and no device has a thousandth of so much memory.
inline constexpr std::uint64_t kMostDevices = 128;
inline constexpr std::uint64_t kMostStreams = 65536;
inline constexpr std::uint64_t kMostPools = 256;
inline constexpr std::uint64_t kMostTraceBytes = std::uint64_t{1} << 50;

/// What allocators round a block up to.
inline constexpr std::uint64_t kBlockGrain = 512;

/// "alloc", "free_requested", ...
const char* to_string(EventKind kind);

/// One fixed-size record; what a kind does not need is 0.
struct TraceEvent {
  EventKind kind = EventKind::alloc;
  std::uint8_t pool = 0;       // index into Trace::pools; 0 is the default pool
  std::uint16_t stream = 0;    // index into Trace::streams
  std::uint32_t block = 0;     // alloc, free_requested, free
  std::uint64_t bytes = 0;     // as asked for, not rounded; segments: their size
  std::uint64_t address = 0;   // where the recorded allocator put it; oom: free on the device
  std::uint64_t time_us = 0;   // microseconds since 1970 (or as `source` counts); 0: unknown
  std::uint32_t site = 0;      // index into Trace::sites; 0 where unknown
  std::uint32_t reserved = 0;  // keeps the record at 40 bytes

  bool operator==(const TraceEvent&) const = default;
};
static_assert(sizeof(TraceEvent) == 40);

/// A range of addresses that the recorded allocator had from its driver.
struct TraceSegment {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint16_t stream = 0;  // index into Trace::streams
  std::uint8_t pool = 0;     // index into Trace::pools
  bool expandable = false;
  std::string type;  // "small", "large"; as recorded

  bool operator==(const TraceSegment&) const = default;
};

struct Trace {
  std::string name;    // of the file, without folder and ending
  std::string source;  // what recorded it: "PyTorch snapshot", "gapless", "generator: ..."
  DeviceIndex device = 0;
  std::vector<TraceEvent> events;
  std::uint64_t initial_events = 0;
  std::uint32_t blocks = 0;                      // block numbers run from 0 to this
  std::vector<std::uint64_t> streams = {0};      // the recorded stream handles
  std::vector<std::string> pools = {"default"};  // PyTorch's pool ids, as "(0, 1)"
  std::vector<std::string> sites = {""};         // call_site(): "file.py:12 forward"
  /// Where stacks were recorded: of each site its innermost node in `stacks`, as many as there are
  /// sites. Sites with one text may differ in what called them. Else empty.
  std::vector<std::uint32_t> site_stacks;
  std::shared_ptr<const CallStacks> stacks;  // of all devices of a recording
  /// What was reserved at the end, by address, where the recording tells.
  std::vector<TraceSegment> segments;
  bool has_segments = false;
  std::uint64_t recorded_peak_reserved_bytes = 0;  // where the recording tells; else 0
  /// The recording begins with nothing reserved, so that a model of the recorded allocator must
  /// come to recorded_peak_reserved_bytes exactly.
  bool starts_empty = false;
  /// What did not fit together in the recording, in words.
  std::vector<std::string> warnings;

  /// Allocations and frees: the operations of a replay.
  [[nodiscard]] std::uint64_t operations() const;
  /// The frames of a site's stack, the innermost first; empty where no stacks were recorded.
  [[nodiscard]] std::vector<std::string_view> frames_of(std::uint32_t site) const;
};

/// Bytes live at the worst moment, each block rounded up to a multiple of `grain`.
std::uint64_t peak_live_bytes(const Trace& trace, std::uint64_t grain = kBlockGrain);

/// Throws InputError where a block is freed before it is allocated, twice, or out of range, where
/// an event names what the trace does not list, and where more memory is live than any device has.
/// `file` stands in errors; the trace's name where it is empty.
void check_trace(const Trace& trace, const std::string& file = {});

}  // namespace gapless
