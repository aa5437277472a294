#include "simgpu/ptx/warp.h"

#include <algorithm>

#include "simgpu/ptx/block.h"

namespace gapless::simgpu::ptx {
namespace {

// After so many turns of the lanes that come first the others get one: these may wait in a loop for
// what the others do.
constexpr unsigned kFirstTurns = 512;

Mask mask_of(unsigned lanes) { return lanes == kLanes ? ~Mask{0} : (Mask{1} << lanes) - 1; }

}  // namespace

Warp::Warp(Block& block, unsigned index, unsigned lane_count)
    : block_(block),
      index_(index),
      alive_(mask_of(lane_count)),
      registers_(std::size_t{block.kernel().row_count} * kLanes) {
  for (const Kernel::Constant& constant : block.kernel().constants) {
    std::fill_n(row(constant.row), kLanes, constant.value);
  }
}

void Warp::run(unsigned instructions) {
  for (; instructions != 0 && can_run(); --instructions) step();
}

void Warp::step() {
  const Mask ready = alive_ & ~waiting_;
  std::uint32_t first = ~0U;
  std::uint32_t last = 0;
  each_lane(ready, [&](unsigned lane) {
    first = std::min(first, next_[lane]);
    last = std::max(last, next_[lane]);
  });
  turns_ = first == last ? 0 : turns_ + 1;
  if (turns_ == kFirstTurns) {
    first = last;
    turns_ = 0;
  }
  Mask lanes = 0;
  each_lane(ready, [&](unsigned lane) {
    if (next_[lane] != first) return;
    lanes |= Mask{1} << lane;
    next_[lane] = first + 1;
  });
  const Instruction& instruction = block_.kernel().instructions[first];
  if (instruction.guard != kNoRow) {
    const std::uint64_t* const guard = row(instruction.guard);
    Mask chosen = 0;
    each_lane(lanes, [&](unsigned lane) {
      if ((guard[lane] != 0) != instruction.guard_negated) chosen |= Mask{1} << lane;
    });
    lanes = chosen;
  }
  LaunchResult& result = block_.grid().result;
  ++result.instructions;
  if (const std::uint64_t most = block_.grid().settings.most_instructions;
      most != 0 && result.instructions > most) {
    result.ran_out_of_instructions = true;
    throw LaunchEnded();
  }
  if (lanes != 0) instruction.run(*this, instruction, lanes);
}

void Warp::jump(Mask lanes, std::uint32_t target) {
  each_lane(lanes, [&](unsigned lane) { next_[lane] = target; });
}

void Warp::end(Mask lanes) {
  alive_ &= ~lanes;
  waiting_ &= ~lanes;
  // Who met the others may have waited for these.
  wake(meeting_);
  each_lane(meeting_, [&](unsigned lane) { --next_[lane]; });
  meeting_ = 0;
  block_.ended(*this, lanes);
}

Mask Warp::meet(Mask lanes, Mask members) {
  const auto first = static_cast<unsigned>(__builtin_ctz(lanes));
  Mask here = lanes;
  each_lane(meeting_, [&](unsigned lane) {
    if (next_[lane] == next_[first]) here |= Mask{1} << lane;
  });
  if ((members & alive_ & ~here) != 0) {
    meeting_ |= lanes;
    wait(lanes);
    return 0;
  }
  here &= members | lanes;
  meeting_ &= ~here;
  wake(here);
  return here;
}

}  // namespace gapless::simgpu::ptx
