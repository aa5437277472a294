// Whether more and more is allocated from step to step of a training, told by the least that was
// allocated in each, which a batch that comes and goes does not touch.
//
//   allocated            |\  |\  |\       least of each step  1.0  1.0  1.0 GiB    no rise
//   losses with graphs   |\_ |\__|\___    least of each step  1.0  1.1  1.2 GiB    2 rises, 0.2 GiB
//
// The first two are left out: the model and the optimizer's states are made there.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gapless::simgpu {

struct StepGrowth {
  /// Since it was last seen to fall: how many steps were compared with the one before, in how many
  /// of them it rose, and by how much in all.
  std::uint64_t steps = 0;
  std::uint64_t rises = 0;
  std::uint64_t grown_bytes = 0;

  /// So much is allocated now.
  void note(std::uint64_t allocated_bytes) {
    now_bytes = allocated_bytes;
    least_bytes = std::min(least_bytes, allocated_bytes);
  }
  /// A step is over.
  void step() {
    constexpr std::uint64_t kLeftOut = 2;
    if (seen >= kLeftOut) compare();
    ++seen;
    before_bytes = least_bytes;
    least_bytes = now_bytes;
  }
  /// In most steps, and in more than chance and varying batches bring about: six that lie in order
  /// by chance are one in 720.
  [[nodiscard]] bool is_steady() const { return rises >= 5 && 2 * rises >= steps; }

  std::uint64_t seen = 0;  // steps
  std::uint64_t now_bytes = 0;
  std::uint64_t least_bytes = 0;  // of this step so far
  std::uint64_t before_bytes = 0;

 private:
  void compare() {
    if (least_bytes < before_bytes) {
      steps = rises = grown_bytes = 0;
      return;
    }
    ++steps;
    rises += least_bytes > before_bytes ? 1 : 0;
    grown_bytes += least_bytes - before_bytes;
  }
};

}  // namespace gapless::simgpu
