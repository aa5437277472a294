// Running a program with several streams through an allocator, on the virtual clock of a simulated
// GPU: how much memory it takes, and how much time is lost against a run with memory without end.
//
//   lost = (time with this allocator) / (time with unlimited memory, no waits added, no calls) - 1
//
// The host runs ahead of the device by one iteration at most. The first iterations, in which every
// allocator makes its memory, are left out of the times.
#pragma once

#include <cstdint>
#include <string>

#include "allocator/driver/counting_driver.h"
#include "bench/streams/program.h"
#include "simgpu/cost_profile.h"

namespace gapless::bench {

struct StreamRunOptions {
  /// Memory of the simulated GPU; 0: as much as any allocator could want.
  std::uint64_t capacity_bytes = 0;
  simgpu::CostProfile costs{};
  /// What the host needs for an operation of the program, in ns.
  std::uint64_t host_ns = 6000;
  /// Iterations before times and calls are counted.
  int warm_up = 4;
  /// Options of gapless itself, "key:value,...".
  std::string settings;
};

struct StreamRunResult {
  std::string program;
  std::string allocator;
  std::uint64_t peak_live_bytes = 0;
  std::uint64_t peak_reserved_bytes = 0;
  bool fits = true;
  /// Of the iterations after the warm-up.
  std::uint64_t ns = 0;
  std::uint64_t ideal_ns = 0;
  DriverCallCounts calls;
  /// Broken rules, in words: memory used too early.
  std::vector<std::string> violations;

  [[nodiscard]] double overhead_percent() const;
  [[nodiscard]] double lost_percent() const;
};

/// Throws std::invalid_argument for an unknown allocator.
StreamRunResult run_streams(const StreamProgram& program, const std::string& allocator,
                            const StreamRunOptions& options);

}  // namespace gapless::bench
