// Live: what a running process tells of its memory and does for others who ask.
//
//   {"do": "status"}                          sums of each device, streams, pools, the recording
//   {"do": "record", "path": ..., "stacks"}   begins a recording        {"do": "stop"} ends it
//   {"do": "dump", "path": ...}               what lies where, as `gapless inspect` reads it
//
// Who asks is another program of the same user (live_page.h) or, by a signal, anybody who may send
// one (option dump_signal).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "allocator/base/fork.h"
#include "allocator/device/allocator.h"
#include "allocator/device/options.h"
#include "allocator/live/live_page.h"
#include "allocator/live/recorder.h"

namespace gapless {

class Live {
 public:
  /// `devices` must outlive this. Begins a recording where the options ask for one; throws
  /// InputError where it cannot.
  Live(Allocator& devices, const Options& options);
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;
  ~Live();

  /// Who knows where in the program a thread is (StackTable); native frames where nobody is set.
  void set_stack_source(DeviceAllocator::StackSource source) { recorder_.set_stack_source(source); }
  /// PyTorch's snapshot, as bytes of a pickle, for dumps to a path that ends with .pickle.
  void set_snapshot(std::function<std::string()> snapshot);

  /// The answer to a request, as JSON. Throws InputError.
  std::string answer(std::string_view request);
  [[nodiscard]] Recorder& recorder() { return recorder_; }

 private:
  std::string status(bool detailed);
  std::string begin(const std::string& path, bool stacks);
  std::string dump(const std::string& path);
  void dump_for_signal();
  void end_at_exit();
  void forget();

  Allocator& devices_;
  Options options_;
  Recorder recorder_;
  std::mutex mutex_;
  std::function<std::string()> snapshot_;
  int dumps_ = 0;  // for signals
  std::unique_ptr<LivePage> page_;
  AfterFork after_fork_;
};

}  // namespace gapless
