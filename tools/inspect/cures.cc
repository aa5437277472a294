#include "tools/inspect/cures.h"

#include <mutex>
#include <thread>

#include "allocator/base/parallel.h"
#include "bench/replay/fit.h"
#include "bench/replay/replay.h"

namespace gapless::tools {
namespace {

// What users are told to try, with the values that guides give; of a setting with several the one
// that does with the least memory is kept.
struct Candidate {
  const char* name;
  std::vector<const char*> allocators;
};
const std::vector<Candidate>& candidates() {
  static const std::vector<Candidate> all = {
      {"PyTorch's default", {"native"}},
      {"expandable_segments:True", {"expandable"}},
      {"gapless", {"gapless"}},
      {"max_split_size_mb",
       {"native+max_split_size_mb:32", "native+max_split_size_mb:128",
        "native+max_split_size_mb:512"}},
      {"roundup_power2_divisions",
       {"native+roundup_power2_divisions:4", "native+roundup_power2_divisions:8",
        "native+roundup_power2_divisions:16"}},
      {"garbage_collection_threshold", {"native+garbage_collection_threshold:0.8"}},
  };
  return all;
}

// The run without what that call site asked for.
Trace without_site(const Trace& trace, const std::string& site) {
  Trace rest = trace;
  std::vector<bool> gone(trace.blocks, false);
  std::erase_if(rest.events, [&](const TraceEvent& event) {
    switch (event.kind) {
      case EventKind::alloc:
        gone[event.block] = trace.sites[event.site] == site;
        return static_cast<bool>(gone[event.block]);
      case EventKind::free:
      case EventKind::free_requested:
        return static_cast<bool>(gone[event.block]);
      default:
        return false;
    }
  });
  return rest;
}

struct Job {
  std::size_t cure = 0;
  std::string allocator;
  std::string name;
  std::string without;
  const Trace* trace = nullptr;
};

// What a setting is for: to run in less memory.
bool is_better(const Cure& a, const Cure& b) {
  if (a.least_bytes && b.least_bytes) return *a.least_bytes < *b.least_bytes;
  return a.reserved_bytes < b.reserved_bytes;
}

constexpr std::uint64_t kEventsForReserved = 3'000'000;
constexpr std::uint64_t kEventsForLeast = 250'000;

}  // namespace

CureWork affordable(const Trace& trace) {
  return {trace.events.size() <= kEventsForReserved, trace.events.size() <= kEventsForLeast};
}

std::vector<Cure> try_cures(const RecordedRun& run, const std::vector<std::string>& sites,
                            const CureWork& work, const std::function<void(double)>& progress) {
  std::vector<Trace> reduced;
  reduced.reserve(sites.size());
  std::vector<Job> jobs;
  std::size_t cures = 0;
  for (const Candidate& candidate : candidates()) {
    for (const char* allocator : candidate.allocators) {
      const std::string plus = allocator;
      const std::size_t at = plus.find('+');
      jobs.push_back({cures, allocator, at == plus.npos ? candidate.name : plus.substr(at + 1), "",
                      &run.trace});
    }
    ++cures;
  }
  for (const std::string& site : sites) {
    reduced.push_back(without_site(run.trace, site));
    jobs.push_back({cures++, "native", "without " + site, site, &reduced.back()});
  }
  bench::ReplayOptions options;
  options.time_operations = false;
  options.stop_when_steady = true;
  std::mutex mutex;
  double done = 0;
  const auto tell = [&](double more) {
    const std::scoped_lock lock(mutex);
    done += more;
    if (progress) progress(done / static_cast<double>(jobs.size()));
  };
  std::vector<std::optional<Cure>> tried(jobs.size());
  in_parallel(jobs.size(), std::thread::hardware_concurrency(), [&](std::size_t i) {
    const Job& job = jobs[i];
    const bench::ReplayResult result = bench::replay(*job.trace, job.allocator, options);
    tell(work.least ? 0.1 : 1);
    if (!result.fits) return;  // more than any GPU has
    Cure cure{job.name,
              job.allocator,
              job.without,
              result.peak_reserved_bytes,
              result.peak_allocated_bytes,
              {}};
    if (work.least) {
      const auto fit = bench::least_capacity(*job.trace, job.allocator, options);
      if (fit) cure.least_bytes = fit->least_bytes;
      tell(0.9);
    }
    tried[i] = std::move(cure);
  });
  std::vector<std::optional<Cure>> best(cures);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!tried[i]) continue;
    std::optional<Cure>& so_far = best[jobs[i].cure];
    if (!so_far || is_better(*tried[i], *so_far)) so_far = std::move(tried[i]);
  }
  std::vector<Cure> list;
  for (std::optional<Cure>& cure : best) {
    if (cure) list.push_back(std::move(*cure));
  }
  return list;
}

}  // namespace gapless::tools
