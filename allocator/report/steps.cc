#include "allocator/report/steps.h"

#include <algorithm>

#include "allocator/report/moment.h"

namespace gapless {
namespace {

constexpr double kWave = 0.2;
constexpr std::size_t kFewestSteps = 5;

}  // namespace

std::vector<std::size_t> step_ends(const Trace& trace) {
  std::uint64_t least = UINT64_MAX;
  std::uint64_t most = 0;
  MomentWalk first(trace);
  while (first.next()) {
    if (first.event() < trace.initial_events) continue;
    least = std::min(least, first.sums().allocated_bytes);
    most = std::max(most, first.sums().allocated_bytes);
  }
  std::vector<std::size_t> found;
  if (most <= least) return found;
  const auto wave = static_cast<std::uint64_t>(kWave * static_cast<double>(most - least));
  // Zigzag: turning points that are a wave apart from those before them.
  bool rising = true;
  std::uint64_t high = 0;
  std::uint64_t low = UINT64_MAX;
  std::size_t low_at = 0;
  MomentWalk walk(trace);
  while (walk.next()) {
    if (walk.event() < trace.initial_events) continue;
    const std::uint64_t now = walk.sums().allocated_bytes;
    if (rising) {
      high = std::max(high, now);
      if (now + wave <= high) {
        rising = false;
        low = now;
        low_at = walk.event();
      }
    } else {
      if (now < low) {
        low = now;
        low_at = walk.event();
      }
      if (now >= low + wave) {
        found.push_back(low_at);
        rising = true;
        high = now;
      }
    }
  }
  if (!rising) found.push_back(low_at);
  if (found.size() < kFewestSteps) found.clear();
  return found;
}

}  // namespace gapless
