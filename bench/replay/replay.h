// Replay: a recorded trace driven through an allocator on a simulated GPU.
//
//   trace ---> Peer ---> CountingDriver ---> SimDriver (capacity, costs)
//                                    \-> calls by kind, their time on the virtual clock
//
// One pass plays every event from the state the recording began with and then frees what is left,
// so that the next pass starts with nothing live: a program that repeats itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/driver/counting_driver.h"
#include "allocator/trace/trace.h"
#include "bench/peers/peer.h"
#include "bench/replay/course.h"
#include "simgpu/cost_profile.h"

namespace gapless::bench {

/// A recorded run *fits* where so many passes in a row complete. One is not enough to tell: what a
/// pass leaves in the cache may be in the way of the next (docs/experiments/passes.md).
inline constexpr int kPasses = 4;

/// The largest GPU that is simulated: several times the largest there is, and all that gapless
/// serves.
inline constexpr std::uint64_t kLargestGpuBytes = TiB;

struct ReplayOptions {
  int passes = kPasses;
  /// Memory of the simulated GPU; 0: as much as any allocator could want, up to the largest.
  std::uint64_t capacity_bytes = 0;
  simgpu::CostProfile costs{};
  /// Options of gapless itself, "key:value,...".
  std::string settings;
  /// Measure the host time of every operation of the last pass.
  bool time_operations = true;
  /// Keep what each pass took, not of the first and the last alone.
  bool keep_passes = false;
  /// Keep the course of the first passes: what was allocated and reserved meanwhile.
  bool keep_course = false;
  /// Leave out passes that are known to go as the one before, which only matter to what is counted.
  bool stop_when_steady = false;
  /// Called now and then with the fraction done, 0 to 1.
  std::function<void(double)> progress;
};

/// What one pass took.
struct PassFigures {
  DriverCallCounts calls;
  /// The most since the begin of the first pass.
  std::uint64_t peak_reserved_bytes = 0;
};

/// Host time of an operation (one alloc or one free), in ns, clock reading taken off.
struct OperationTimes {
  double mean_ns = 0;
  double p50_ns = 0;
  double p99_ns = 0;
};

struct ReplayResult {
  std::string trace;
  DeviceIndex device = 0;
  std::string allocator;
  std::uint64_t events = 0;
  std::uint64_t operations = 0;
  /// Most bytes live at once, blocks rounded up to 512 B; the same for every allocator.
  std::uint64_t peak_allocated_bytes = 0;
  std::uint64_t peak_reserved_bytes = 0;
  DriverCallCounts first_pass;
  DriverCallCounts last_pass;
  DriverCallCounts all_passes;
  /// Driver calls for each 1,000 allocations after the first sixth of the first pass: what a
  /// program that never repeats goes on paying once it has warmed up.
  double calls_per_1000_allocations = 0;
  OperationTimes times;
  bool fits = true;  // all passes completed
  /// Where it did not fit: in which pass (from 1), at which event, and what that asked for.
  int failed_pass = 0;
  std::uint64_t failed_event = 0;
  std::uint64_t failed_bytes = 0;

  /// Of all that were played, where it was asked for; not of allocators in torch.
  std::vector<PassFigures> passes;
  /// Of the first passes, where it was asked for.
  std::vector<PassCourse> course;

  /// How much more is reserved than allocated at their peaks, in percent. Nothing where it did not
  /// complete: what it would have come to is not known.
  [[nodiscard]] std::optional<double> overhead_percent() const;
};

/// Through an allocator of the caller's; `streams` are what the trace's streams are to it, `counts`
/// reads the counters of its driver. What is not of the trace or the replay is left empty.
ReplayResult replay_through(const Trace& trace, Peer& peer,
                            const std::vector<StreamHandle>& streams,
                            const std::function<DriverCallCounts()>& counts,
                            const ReplayOptions& options);

/// Through the allocator of that name (peers/peer.h), on a simulated GPU. Throws
/// std::invalid_argument for an unknown one, and InputError where torch-* cannot be had or the GPU
/// is to be larger than the largest.
ReplayResult replay(const Trace& trace, const std::string& allocator, const ReplayOptions& options);

}  // namespace gapless::bench
