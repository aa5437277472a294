// A process of its own that has memory of a simulated GPU and tells of it (allocator/live), for
// tests of those who ask.
//
//   GPU 0   64 MiB, nothing of it used
//   GPU 1   1 GiB: 5 MiB on the default stream, 3 MiB on another, and 1 MiB now and then
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/live/live.h"
#include "simgpu/sim_driver.h"

namespace gapless::testing {

/// Lives until the test ends. `in_order`: does nothing more, and ends in order at SIGTERM.
class RunningProcess {
 public:
  explicit RunningProcess(const std::string& options = "", bool in_order = false) {
    int ready[2];
    if (::pipe(ready) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ready[0]);
      run(options, ready[1], in_order);
    }
    ::close(ready[1]);
    char said = 0;
    ready_ = ::read(ready[0], &said, 1) == 1;
    ::close(ready[0]);
  }
  RunningProcess(const RunningProcess&) = delete;
  RunningProcess& operator=(const RunningProcess&) = delete;
  ~RunningProcess() { end(SIGKILL); }

  void end(int signal) {
    if (pid_ == 0) return;
    ::kill(pid_, signal);
    ::kill(pid_, SIGCONT);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] bool ready() const { return ready_; }

 private:
  [[noreturn]] static void run(const std::string& options, int ready, bool in_order) {
    static simgpu::SimDriver gpu(
        {.devices = {{.total_bytes = 64 * MiB}, {.total_bytes = 1 * GiB}}});
    DriverStatus status = DriverStatus::ok;
    const Options read = read_options(options);
    static Allocator allocator(gpu, read, status);
    static const Live live(allocator, read);
    DeviceAddress address = 0;
    StreamHandle side = 0;
    (void)gpu.stream_create(1, side);
    (void)allocator.alloc(1, 5 * MiB, 0, address);
    (void)allocator.alloc(1, 3 * MiB, side, address);
    if (in_order) {  // ends in order, at a signal
      static std::atomic<bool> told{false};
      std::signal(SIGTERM, [](int) { told = true; });
      (void)::write(ready, "r", 1);
      while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::exit(0);
    }
    (void)::write(ready, "r", 1);
    while (true) {
      (void)allocator.alloc(1, 1 * MiB, 0, address);
      (void)allocator.free(address);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  int pid_ = 0;
  bool ready_ = false;
};

}  // namespace gapless::testing
