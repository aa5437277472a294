// SharedUsage: what the processes of one program take of the same GPUs.
//
//   file   [ pid 4711 | GPU 0: 3.2 GiB | GPU 1: 0 ]  [ pid 4712 | GPU 0: 1.1 GiB | ... ]  ...
//
// Each process writes what it takes; what is free is what the others leave. A process that has
// ended takes nothing any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace gapless::simgpu {

class SharedUsage {
 public:
  static constexpr int kDevices = 16;

  /// Makes the file where it is not there. Without a name, or where it cannot be had, nothing is
  /// shared.
  explicit SharedUsage(const std::string& file);
  ~SharedUsage();
  SharedUsage(const SharedUsage&) = delete;
  SharedUsage& operator=(const SharedUsage&) = delete;

  /// This process takes so much of that GPU from now on.
  void publish(int device, std::uint64_t bytes);
  /// What all other processes take of it.
  [[nodiscard]] std::uint64_t of_others(int device) const;

 private:
  static constexpr int kProcesses = 256;
  struct Slot {
    std::atomic<pid_t> pid;
    std::atomic<std::uint64_t> bytes[kDevices];
  };
  /// This process's slot: one of its own after a fork, too. nullptr where all are taken.
  Slot* own();

  Slot* slots_ = nullptr;
  Slot* own_ = nullptr;
};

}  // namespace gapless::simgpu
