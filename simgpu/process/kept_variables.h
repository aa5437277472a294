// KeptVariables: the environment of a program that is started by one on simulated GPUs, so that it
// is on them, too, whatever environment it is given.
//
//   subprocess.Popen(job, env={"CUDA_VISIBLE_DEVICES": "0"})     + LD_PRELOAD=..., SIMGPU_GPUS=...
//   env -i python train.py                                       the same
//   LD_PRELOAD=libtcmalloc.so python train.py LD_PRELOAD=libsimgpu.so:libtcmalloc.so
//
// A program that it knew nothing of would use a GPU that is not there, and the others would be said
// to fit without it.
#pragma once

#include <array>
#include <cstddef>

namespace gapless::simgpu {

/// The environment with what it lacks. Nothing is allocated: it is made in children, between fork
/// (or vfork) and exec. One with SIMGPU_OUTSIDE stays as it is, and so does one that is too long.
class KeptVariables {
 public:
  explicit KeptVariables(char* const* given);
  KeptVariables(const KeptVariables&) = delete;
  KeptVariables& operator=(const KeptVariables&) = delete;

  [[nodiscard]] char* const* get() const { return given_; }

 private:
  static constexpr std::size_t kMost = 2048;
  static constexpr std::size_t kLongest = 8192;

  char* const* given_;
  std::array<char*, kMost> all_;
  std::array<char, kLongest> preload_;
};

}  // namespace gapless::simgpu
