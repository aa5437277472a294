// NativeSites: from where in a program without Python memory is asked for.
//
//   0x7f..1a4 in libtorch_cpu.so <- 0x55..3c2 in train       site 3
//   line 3 of 4711.0.sites   {"native": [["libtorch_cpu.so", 420, "_ZN2a..."], ["train", 962, ""]]}
//
// Addresses are told as they lie in their files, with the names that the dynamic linker knows,
// which are torch's: lines are looked up afterwards (tools/native_lines.h), where debug information
// is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "simgpu/process/recorder.h"

namespace gapless::simgpu {

class NativeSites {
 public:
  /// This process's, never destroyed.
  static NativeSites& get();

  /// Beside that recorder's file.
  explicit NativeSites(const Recorder& recorder) : recorder_(recorder) {}
  NativeSites(const NativeSites&) = delete;
  NativeSites& operator=(const NativeSites&) = delete;

  /// The calling thread's stack, as a line of the file; 0 where none is written.
  std::uint32_t here();

  /// In the child, after a fork.
  void forget();

 private:
  static constexpr std::size_t kMost = 1 << 16;  // a program with more stacks does not settle

  bool write(const std::vector<void*>& stack);

  const Recorder& recorder_;
  std::mutex mutex_;
  std::map<std::vector<void*>, std::uint32_t> known_;
  int file_ = -1;
};

}  // namespace gapless::simgpu
