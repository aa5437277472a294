#include "allocator/report/leaks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "allocator/report/moment.h"

namespace gapless {
namespace {

// A step is told by memory that falls and rises by a fifth of all that it ever moves by; smaller
// waves are within steps.
constexpr double kWave = 0.2;
constexpr std::size_t kFewestSteps = 5;
// Of all steps but the first, in which much is made that stays, and the last, which may not be
// over, something stays in so many. One in ten may be another kind of step (an evaluation).
constexpr double kInMost = 0.9;

// The events at which memory is least, one for each step.
std::vector<std::size_t> valleys(const Trace& trace) {
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
  return found;
}

struct Kept {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t block_bytes = 0;
  bool same_bytes = true;
  std::map<std::size_t, std::uint64_t> steps;  // the bytes of each
};

}  // namespace

std::vector<Leak> find_leaks(const Trace& trace) {
  const std::vector<std::size_t> ends = valleys(trace);
  if (ends.size() < kFewestSteps) return {};
  std::vector<const TraceEvent*> live(trace.blocks, nullptr);
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::alloc) live[event.block] = &event;
    if (event.kind == EventKind::free || event.kind == EventKind::free_requested) {
      live[event.block] = nullptr;
    }
  }
  // What was never freed, by the step in which it came: by site, or by what it asked for.
  std::map<std::tuple<std::string, std::uint64_t, std::uint16_t>, Kept> places;
  for (const TraceEvent* made : live) {
    if (made == nullptr) continue;
    const auto event = static_cast<std::size_t>(made - trace.events.data());
    if (event < trace.initial_events) continue;
    const std::string& site = trace.sites[made->site];
    const bool by_size = site.empty();
    Kept& kept = places[{site, by_size ? made->bytes : 0, by_size ? made->stream : 0}];
    if (kept.blocks != 0 && kept.block_bytes != made->bytes) kept.same_bytes = false;
    kept.block_bytes = made->bytes;
    kept.bytes += made->bytes;
    ++kept.blocks;
    const auto step = std::lower_bound(ends.begin(), ends.end(), event) - ends.begin();
    kept.steps[static_cast<std::size_t>(step)] += made->bytes;
  }
  // Steps between the first valley and the last.
  const std::size_t steps = ends.size() - 1;
  std::vector<Leak> leaks;
  for (const auto& [key, kept] : places) {
    std::uint64_t within = 0;
    std::uint64_t bytes = 0;
    for (const auto& [step, stayed] : kept.steps) {
      if (step < 1 || step > steps) continue;
      ++within;
      bytes += stayed;
    }
    if (static_cast<double>(within) < kInMost * static_cast<double>(steps)) continue;
    leaks.push_back({std::get<0>(key), kept.same_bytes ? kept.block_bytes : 0, kept.bytes,
                     kept.blocks, within, steps, bytes / steps});
  }
  std::stable_sort(leaks.begin(), leaks.end(),
                   [](const Leak& a, const Leak& b) { return a.bytes > b.bytes; });
  return leaks;
}

}  // namespace gapless
