#include "allocator/report/lifetimes.h"

#include <algorithm>
#include <array>

#include "allocator/report/steps.h"

namespace gapless {
namespace {

enum Lifetime : std::uint8_t {
  within,
  into_next,
  several,
  from_first,
  from_later,
  from_last,
  freed_without_steps,
  kept_without_steps,
  before_kept,
  before_freed,
  kLifetimes,
};
constexpr std::array kLifetimeNames = {"within one step",
                                       "into the next step",
                                       "several steps",
                                       "from the first step to the last",
                                       "from a later step to the end",
                                       "from the last step, not freed",
                                       "freed before the end",
                                       "to the end",
                                       "there before, to the end",
                                       "there before, freed later"};
static_assert(kLifetimeNames.size() == kLifetimes);

constexpr std::size_t kNotFreed = SIZE_MAX;

struct Lived {
  std::size_t from = 0;
  std::size_t to = kNotFreed;
};

Lifetime lifetime(const Lived& lived, const Trace& trace, const std::vector<std::size_t>& ends) {
  const bool kept = lived.to == kNotFreed;
  if (lived.from < trace.initial_events) return kept ? before_kept : before_freed;
  if (ends.empty()) return kept ? kept_without_steps : freed_without_steps;
  const auto step_of = [&](std::size_t event) {
    return std::lower_bound(ends.begin(), ends.end(), event) - ends.begin();
  };
  const auto first = step_of(lived.from);
  if (kept) {
    const auto not_over = static_cast<std::ptrdiff_t>(ends.size());
    return first == 0 ? from_first : first == not_over ? from_last : from_later;
  }
  const auto last_ended = static_cast<std::ptrdiff_t>(ends.size()) - 1;
  // A program that ends in order gives its weights up in the last step or behind it.
  if (first == 0 && step_of(lived.to) >= last_ended) return from_first;
  const auto crossed = step_of(lived.to) - first;
  return crossed == 0 ? within : crossed == 1 ? into_next : several;
}

}  // namespace

Lifetimes lifetimes_of(const Trace& trace) {
  Lifetimes lifetimes;
  lifetimes.names.assign(kLifetimeNames.begin(), kLifetimeNames.end());
  lifetimes.step_ends = step_ends(trace);
  std::vector<Lived> lives(trace.blocks);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind == EventKind::alloc) {
      lives[event.block] = {i, kNotFreed};
    } else if (event.kind == EventKind::free_requested || event.kind == EventKind::free) {
      Lived& lived = lives[event.block];
      lived.to = std::min(lived.to, i);
    }
  }
  lifetimes.of_block.reserve(lives.size());
  for (const Lived& lived : lives) {
    lifetimes.of_block.push_back(lifetime(lived, trace, lifetimes.step_ends));
  }
  return lifetimes;
}

}  // namespace gapless
