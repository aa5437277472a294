// Whether more and more is allocated from step to step of a training, told by the least that was
// allocated in each, which a batch that comes and goes does not touch.
//
//   allocated            |\  |\  |\       least of each step  1.0  1.0  1.0 GiB    no rise
//   losses with graphs   |\_ |\__|\___    least of each step  1.0  1.1  1.2 GiB    2 rises, 0.2 GiB
#pragma once

#include <cstdint>

namespace gapless::simgpu {

struct StepGrowth {
  /// Since it was last seen to fall: how many steps were compared with the one before, in how many
  /// of them it rose, and by how much in all.
  std::uint64_t steps = 0;
  std::uint64_t rises = 0;
  std::uint64_t grown_bytes = 0;

  /// A step, and the one before it, by the least that was allocated in each.
  void note(std::uint64_t before_bytes, std::uint64_t least_bytes) {
    if (least_bytes < before_bytes) {
      steps = rises = grown_bytes = 0;
      return;
    }
    ++steps;
    rises += least_bytes > before_bytes ? 1 : 0;
    grown_bytes += least_bytes - before_bytes;
  }
  /// In most steps, and in more than chance and varying batches bring about: six that lie in order
  /// by chance are one in 720.
  [[nodiscard]] bool is_steady() const { return rises >= 5 && 2 * rises >= steps; }
};

}  // namespace gapless::simgpu
