#include "tools/advise/what_if.h"

#include <algorithm>
#include <utility>

namespace gapless::tools {

std::uint64_t peak_if(const std::vector<simgpu::HeldBlock>& blocks, const Share& share,
                      std::uint64_t more) {
  std::vector<std::pair<std::uint64_t, double>> changes;  // at an event, in bytes
  changes.reserve(2 * blocks.size());
  for (const simgpu::HeldBlock& block : blocks) {
    const double bytes = static_cast<double>(block.bytes) * share(block);
    if (bytes <= 0) continue;
    changes.emplace_back(block.begin, bytes);
    changes.emplace_back(block.end, -bytes);
  }
  // Of one event, what ends comes first.
  std::sort(changes.begin(), changes.end());
  double now = 0;
  double most = 0;
  for (const auto& [event, bytes] : changes) {
    now += bytes;
    most = std::max(most, now);
  }
  return static_cast<std::uint64_t>(most + 0.5) + more;
}

std::vector<simgpu::HeldBlock> live_at(const std::vector<simgpu::HeldBlock>& blocks,
                                       std::uint64_t event) {
  std::vector<simgpu::HeldBlock> live;
  std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(live),
               [event](const simgpu::HeldBlock& block) {
                 return block.begin <= event && event < block.end;
               });
  return live;
}

}  // namespace gapless::tools
