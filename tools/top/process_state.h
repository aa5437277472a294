// ProcessState: what a running process says of its memory (allocator/live/live.h), as data.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gapless::tools {

struct NamedBytes {
  std::string name;
  std::uint64_t bytes = 0;
};

struct DeviceState {
  int device = 0;
  std::uint64_t total_bytes = 0;
  std::optional<std::uint64_t> limit_bytes;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t peak_allocated_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t peak_reserved_bytes = 0;
  std::uint64_t allocations = 0;  // ever
  std::uint64_t ooms = 0;
  std::uint64_t waits = 0;  // of a stream for another
  std::uint64_t syncs = 0;  // for the whole device
  std::uint64_t host_bytes = 0;
  std::vector<NamedBytes> streams;  // the largest first
  std::vector<NamedBytes> pools;

  /// What it may have: its limit, or the whole device.
  [[nodiscard]] std::uint64_t capacity_bytes() const {
    return std::min(total_bytes, limit_bytes.value_or(total_bytes));
  }
};

struct ProcessState {
  int pid = 0;
  std::string command;  // "python train.py --batch 8"
  std::chrono::steady_clock::time_point when;
  std::vector<DeviceState> devices;
  std::string recorded_to;  // empty: it is not recorded
  std::uint64_t recorded_events = 0;
  std::uint64_t lost_events = 0;
  std::string recording_failed;
  std::vector<NamedBytes> sites;  // recorded: the largest first
  nlohmann::json answer;          // the whole
  std::string problem;            // why it did not answer; then all else is empty
};

/// Asks it. What is wrong is in `problem`; throws nothing.
ProcessState state_of_process(int pid);

}  // namespace gapless::tools
