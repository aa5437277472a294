// Warp: 32 lanes of a block: their registers, and where in the kernel each of them is.
//
//   lanes    0 1 2 3 ...        the lanes whose next instruction comes first in the text go
//   next    17 17 42 17         on together: 0, 1 and 3; lane 2 waits at 42, where they will
//                               meet again if the program brings them there
//
// A lane may wait for others: at a barrier of the block, or at an instruction that lanes of the
// warp run together (shfl.sync).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simgpu/ptx/instruction.h"

namespace gapless::simgpu::ptx {

class Block;

class Warp {
 public:
  Warp(Block& block, unsigned index, unsigned lane_count);

  [[nodiscard]] std::uint64_t* row(Row row) {
    return registers_.data() + std::size_t{row} * kLanes;
  }
  [[nodiscard]] Block& block() { return block_; }
  [[nodiscard]] unsigned index() const { return index_; }
  [[nodiscard]] unsigned thread(unsigned lane) const { return index_ * kLanes + lane; }
  [[nodiscard]] Mask alive() const { return alive_; }
  [[nodiscard]] bool has_ended() const { return alive_ == 0; }
  /// Whether any lane can go on.
  [[nodiscard]] bool can_run() const { return (alive_ & ~waiting_) != 0; }

  /// Runs `instructions` of them at most, for as long as a lane can go on.
  void run(unsigned instructions);

  // --- for operations ---
  /// Carry bits of add.cc, one a lane.
  std::array<std::uint8_t, kLanes>& carries() { return carries_; }
  void jump(Mask lanes, std::uint32_t target);
  void end(Mask lanes);
  /// They stay before what comes next until wake().
  void wait(Mask lanes) { waiting_ |= lanes; }
  void wake(Mask lanes) { waiting_ &= ~lanes; }
  /// For an instruction that the lanes of `members` run together: those to run it for, or none
  /// where others are still to come; the lanes then wait at it.
  Mask meet(Mask lanes, Mask members);
  [[nodiscard]] std::uint32_t next_of(unsigned lane) const { return next_[lane]; }

 private:
  void step();

  Block& block_;
  unsigned index_;
  Mask alive_;
  Mask waiting_ = 0;
  Mask meeting_ = 0;  // of those that wait, in meet()
  std::array<std::uint32_t, kLanes> next_{};
  std::array<std::uint8_t, kLanes> carries_{};
  unsigned turns_ = 0;  // of the lanes that come first, while others could go on
  std::vector<std::uint64_t> registers_;
};

/// Calls f(lane) for each of them.
template <class F>
void each_lane(Mask lanes, F&& f) {
  for (; lanes != 0; lanes &= lanes - 1) f(static_cast<unsigned>(__builtin_ctz(lanes)));
}

}  // namespace gapless::simgpu::ptx
