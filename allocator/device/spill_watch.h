// SpillWatch: how much host memory stood in for the device's at most, and for how long there has
// been any.
//
//   0 B    2 GiB    5 GiB    1 GiB    0 B
//            |<----- since ---->|            peak 5 GiB
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "allocator/device/heap_report.h"

namespace gapless {

class SpillWatch {
 public:
  void note(std::uint64_t bytes) {
    peak_bytes_ = std::max(peak_bytes_, bytes);
    if (bytes == 0) {
      since_.reset();
    } else if (!since_) {
      since_ = std::chrono::steady_clock::now();
    }
  }
  void tell(SpillReport& report) const {
    report.peak_bytes = peak_bytes_;
    if (since_) report.since = std::chrono::steady_clock::now() - *since_;
  }

 private:
  std::uint64_t peak_bytes_ = 0;
  std::optional<std::chrono::steady_clock::time_point> since_;
};

}  // namespace gapless
