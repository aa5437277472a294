// Recorder: all that a process asks of gapless, written to a file while it runs.
//
//   device 0   EventRing --+
//   device 1   EventRing --+--> one thread, every few milliseconds --> StreamedWriter --> file
//
// The program waits for nothing: what does not fit into a ring is lost, and counted. Memory is
// bounded by the rings, what is live and one frame a device. A file is whole up to its last frame
// (once a second) however the program ends, and ended with the process where that ends in order.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "allocator/device/allocator.h"

namespace gapless {

class Recorder {
 public:
  /// `devices` must outlive this.
  explicit Recorder(Allocator& devices);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// Ends the recording.
  ~Recorder();

  /// Who knows where in the program a thread is, for recordings with stacks.
  void set_stack_source(DeviceAllocator::StackSource source);

  /// Records from now on to a new file at `path`. Throws InputError where it cannot be written or
  /// there is a recording already.
  void begin(const std::string& path, bool stacks);

  struct Site {
    std::string text;
    std::uint64_t live_bytes = 0;
  };
  struct State {
    bool on = false;
    std::string path;
    std::uint64_t events = 0;
    std::uint64_t lost = 0;
    std::uint64_t file_bytes = 0;
    std::string error;        // why it ended by itself
    std::vector<Site> sites;  // those with the most that is live
  };
  [[nodiscard]] State state();

  /// Writes what is left, and how the recording was. Nothing where there is none.
  State end();
  /// In a forked child: nothing is written there, and no thread is left.
  void forget();

 private:
  struct Session;

  Allocator& devices_;
  std::mutex mutex_;  // of beginning and ending
  DeviceAllocator::StackSource stack_source_ = nullptr;
  std::unique_ptr<Session> session_;
};

}  // namespace gapless
