// Whether the system ends processes because this machine's memory has run out: a program is killed
// then that has done nothing wrong, and whose GPUs had room.
//
//   /proc/vmstat   oom_kill 3     before a program
//                  oom_kill 4     after it, and SIGKILL was its end
#pragma once

#include <cstdint>
#include <string>

namespace gapless::tools {

/// How many processes the kernel has ended for want of memory since it was started; 0 where it does
/// not say.
std::uint64_t memory_kills(const std::string& statistics = "/proc/vmstat");

/// Counts them from now on.
class MemoryKills {
 public:
  [[nodiscard]] bool any() const { return memory_kills() > before_; }

 private:
  std::uint64_t before_ = memory_kills();
};

}  // namespace gapless::tools
