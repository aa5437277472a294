// TopScreen: running processes and their memory, for a terminal.
//
//   PID 4711  python train.py --batch 8
//   GPU 0  [##################::        ] 13.61 GiB allocated, 13.70 reserved of 16.00 GiB
//          peak 13.70 GiB  812 allocations/s  0 waits  0 out of memory
//          ▁▂▅▇▇▅▇▇▅▇▇  allocated, the last 60 s
//
// It remembers what it saw before: rates and histories come of that.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/top/process_state.h"

namespace gapless::tools {

class TopScreen {
 public:
  /// What is to be seen now, in lines of at most `columns`. Devices without memory are left out.
  std::string text(const std::vector<ProcessState>& processes, std::size_t columns, bool colour);

  /// Allocations a second since the device was seen before; nothing the first time.
  [[nodiscard]] std::optional<double> rate_of(int pid, int device) const;

 private:
  struct Seen {
    std::chrono::steady_clock::time_point when;
    std::uint64_t allocations = 0;
    std::optional<double> per_second;
    std::deque<std::uint64_t> allocated;  // the newest last
  };
  void note(const ProcessState& process, const DeviceState& device);
  std::string device_text(const ProcessState& process, const DeviceState& device,
                          std::size_t columns, bool colour) const;

  std::map<std::pair<int, int>, Seen> seen_;
};

}  // namespace gapless::tools
