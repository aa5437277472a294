#include "bench/replay/fit.h"

#include <algorithm>
#include <map>
#include <vector>

#include "allocator/base/bytes.h"
#include "simgpu/process/gpu_profile.h"

namespace gapless::bench {
namespace {

// Capacities are counted in steps.
constexpr std::uint64_t kStep = 2 * MiB;
constexpr std::uint64_t kMost = kLargestGpuBytes / kStep;

class Trials {
 public:
  Trials(const Trace& trace, const std::string& allocator, const ReplayOptions& options)
      : trace_(trace), allocator_(allocator), options_(options) {
    options_.time_operations = false;
    options_.stop_when_steady = true;
  }

  // What is reserved where memory never runs out.
  std::uint64_t ample() {
    options_.capacity_bytes = 0;
    return div_up(replay(trace_, allocator_, options_).peak_reserved_bytes, kStep);
  }

  bool complete(std::uint64_t capacity) {
    if (const auto known = known_.find(capacity); known != known_.end()) return known->second;
    if (told_by_larger(capacity)) return known_[capacity] = true;
    options_.capacity_bytes = capacity * kStep;
    const ReplayResult result = replay(trace_, allocator_, options_);
    if (result.fits) taken_[capacity] = div_up(result.peak_reserved_bytes, kStep);
    return known_[capacity] = result.fits;
  }

  [[nodiscard]] std::uint64_t lowest() const {
    const auto found =
        std::find_if(known_.begin(), known_.end(), [](const auto& trial) { return trial.second; });
    return found->first;
  }
  [[nodiscard]] std::uint64_t above(std::uint64_t capacity) const {
    return static_cast<std::uint64_t>(std::distance(known_.upper_bound(capacity), known_.end()));
  }
  // The least known to be above it that completes.
  [[nodiscard]] std::uint64_t next_complete(std::uint64_t capacity) const {
    const auto found = std::find_if(known_.upper_bound(capacity), known_.end(),
                                    [](const auto& trial) { return trial.second; });
    return found->first;
  }

 private:
  // The native allocator learns of the capacity only by what is refused: a run that completed with
  // more and never took more than this would have gone the same way.
  [[nodiscard]] bool told_by_larger(std::uint64_t capacity) const {
    if (allocator_ != "native") return false;  // with settings it may look at the capacity
    return std::any_of(taken_.upper_bound(capacity), taken_.end(),
                       [&](const auto& trial) { return trial.second <= capacity; });
  }

  const Trace& trace_;
  const std::string& allocator_;
  ReplayOptions options_;
  std::map<std::uint64_t, bool> known_;
  std::map<std::uint64_t, std::uint64_t> taken_;  // by capacity, where it completed
};

// The least that completes between one that does not and one that does, if there were but one.
std::uint64_t bisect(Trials& trials, std::uint64_t fails, std::uint64_t completes) {
  while (fails + 1 < completes) {
    const std::uint64_t middle = fails + (completes - fails) / 2;
    (trials.complete(middle) ? completes : fails) = middle;
  }
  return completes;
}

// What to try between two capacities, from the largest down: the next ones, closely up to 4 % more,
// from there twice as far each time; the next whole GiB; what cards have.
std::vector<std::uint64_t> between(std::uint64_t least, std::uint64_t ample) {
  constexpr std::uint64_t kGiB = GiB / kStep;
  constexpr std::uint64_t kWhole = 4;
  constexpr std::uint64_t kClose = 16;
  std::vector<std::uint64_t> tries = {least + 1, least + 2, least + 4, least + 8};
  for (std::uint64_t i = 1; i <= kClose; ++i) tries.push_back(least + least * i / (25 * kClose));
  for (std::uint64_t far = div_up(least, 12); least + far < ample; far *= 2)
    tries.push_back(least + far);
  for (std::uint64_t i = 1; i <= kWhole; ++i) tries.push_back((least / kGiB + i) * kGiB);
  for (const std::string& name : simgpu::gpu_profile_names()) {
    tries.push_back(simgpu::parse_gpus(name).front().total_bytes / kStep);
  }
  std::erase_if(tries, [&](std::uint64_t one) { return one <= least || one >= ample; });
  std::sort(tries.rbegin(), tries.rend());
  return tries;
}

}  // namespace

std::optional<Fit> least_capacity(const Trace& trace, const std::string& allocator,
                                  const ReplayOptions& options) {
  Trials trials(trace, allocator, options);
  // Nothing completes below what is live at once, and all does where memory never runs out.
  const std::uint64_t live = std::max<std::uint64_t>(1, div_up(peak_live_bytes(trace), kStep));
  if (live > kMost) return {};
  std::uint64_t ample = std::min(std::max(live, trials.ample()), kMost);
  while (!trials.complete(ample)) {
    if (ample == kMost) return {};
    ample = std::min(ample + div_up(ample, 64), kMost);
  }
  std::uint64_t least = bisect(trials, live - 1, ample);
  for (bool all_complete = false; !all_complete;) {
    all_complete = true;
    for (const std::uint64_t capacity : between(least, ample)) {
      if (trials.complete(capacity)) continue;
      least = bisect(trials, capacity, trials.next_complete(capacity));
      all_complete = false;
      break;
    }
  }
  return Fit{least * kStep, trials.above(least), trials.lowest() * kStep};
}

}  // namespace gapless::bench
