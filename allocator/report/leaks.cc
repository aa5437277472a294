#include "allocator/report/leaks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "allocator/report/steps.h"

namespace gapless {
namespace {

// Of all steps but the first, in which much is made that stays, and the last, which may not be
// over, something stays in so many. One in ten may be another kind of step (an evaluation).
constexpr double kInMost = 0.9;

struct Kept {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t block_bytes = 0;
  bool same_bytes = true;
  std::map<std::size_t, std::uint64_t> steps;  // the bytes of each
};

}  // namespace

std::vector<Leak> find_leaks(const Trace& trace) {
  const std::vector<std::size_t> ends = step_ends(trace);
  if (ends.empty()) return {};
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
