// Machine: what a tool is told of its blocks (check:nvtx).
#include <iterator>

#include <fmt/format.h>

#include "tests/support/machine.h"

namespace gapless::testing {

void Machine::note_told_end(const Live& block) {
  if (!tool_) return;
  const DeviceAddress end = block.address + block.requested;
  for (auto& [pool, ranges] : kept_) ranges.remove(block.address, end);
  const bool graphs = block.pool != PoolId{} && block.pool.second == 0;
  if (block.fenced) {
    kept_fenced_.add(block.address, end);  // until it is unmapped; nobody has these addresses again
  } else if (graphs || may_capture()) {
    kept_[graphs ? block.pool : PoolId{}].add(block.address, end);
  } else if (block.pins == 0) {
    kept_.erase(PoolId{});  // the device was waited for
  }
}

std::string Machine::judge_told() {
  if (std::string mistakes = tool_->mistakes(); !mistakes.empty()) return mistakes;
  RangeSet told;
  for (const ToldRange& region : tool_->regions()) {
    told.add(region.address, region.address + region.bytes);
  }
  // What is left is nobody's.
  RangeSet rest = told;
  for (const Live& block : live_) {
    const DeviceAddress end = block.address + block.requested;
    if (block.asleep) continue;
    const auto known = told.inside(block.address, end);
    std::uint64_t bytes = 0;
    for (const RangeSet::Range& range : known) bytes += range.bytes();
    if (bytes != block.requested) {
      return fmt::format("of block {:#x} the tool knows {} of {} B", block.address, bytes,
                         block.requested);
    }
    rest.remove(block.address, end);
  }
  // A pool that sleeps may have been woken halfway.
  for (const Live& block : live_) rest.remove(block.address, block.address + block.requested);
  for (const Live& block : held_blocks_) {
    rest.remove(block.address, block.address + block.requested);
  }
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const bool gone = kept->first != PoolId{} && !is_alive(kept->first);
    for (const RangeSet::Range& range : kept->second.inside(0, UINT64_MAX)) {
      if (gone && may_capture()) kept_[PoolId{}].add(range.begin, range.end);
    }
    kept = gone ? kept_.erase(kept) : std::next(kept);
  }
  for (const RangeSet::Range& range : kept_fenced_.inside(0, UINT64_MAX)) {
    rest.remove(range.begin, range.end);
  }
  for (const auto& [pool, ranges] : kept_) {
    for (const RangeSet::Range& range : ranges.inside(0, UINT64_MAX)) {
      rest.remove(range.begin, range.end);
    }
  }
  const auto nobodys = rest.inside(0, UINT64_MAX);
  return nobodys.empty() ? ""
                         : fmt::format("the tool knows {:#x}, of {} B, which is no block's",
                                       nobodys.front().begin, nobodys.front().bytes());
}

}  // namespace gapless::testing
