// SpillBudget: how much host memory may stand in for the device's, and whether a program still
// needs what does.
//
//   allocated in all   ----- spilled -----|----------- 8 peaks without -----------|--> given back
#pragma once

#include <algorithm>
#include <cstdint>

#include "allocator/device/demand.h"

namespace gapless {

class SpillBudget {
 public:
  explicit SpillBudget(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}

  [[nodiscard]] bool is_allowed() const { return most_bytes_ != 0; }
  /// What may come from the host when it gave so much.
  [[nodiscard]] std::uint64_t bytes_left(std::uint64_t there_bytes) const {
    return most_bytes_ - std::min(most_bytes_, there_bytes);
  }
  /// A request is about to be served from there.
  void note_wanted(const Demand& demand) { last_volume_bytes_ = demand.volume_bytes; }
  /// Whether the program did without for a while.
  [[nodiscard]] bool is_idle(const Demand& demand) const {
    return demand.volume_bytes >= last_volume_bytes_ + kIdlePeaks * demand.peak_bytes;
  }

 private:
  // A program that allocated so many times its peak without host memory needs it no more.
  static constexpr std::uint64_t kIdlePeaks = 8;

  std::uint64_t most_bytes_;
  std::uint64_t last_volume_bytes_ = 0;  // what the program had allocated when it last wanted some
};

}  // namespace gapless
