#include "tools/inspect/cures.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "allocator/trace/trace.h"
#include "bench/replay/fit.h"
#include "bench/replay/replay.h"
#include "tools/parallel.h"

namespace gapless::tools {
namespace {

// What users are told to try, with the values that guides give; of a setting with several the one
// that reserves least is kept.
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
  const Trace* trace = nullptr;
};

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
      jobs.push_back(
          {cures, allocator, at == plus.npos ? candidate.name : plus.substr(at + 1), &run.trace});
    }
    ++cures;
  }
  for (const std::string& site : sites) {
    reduced.push_back(without_site(run.trace, site));
    jobs.push_back({cures++, "native", "without " + site, &reduced.back()});
  }
  bench::ReplayOptions options;
  options.time_operations = false;
  options.stop_when_steady = true;
  std::mutex mutex;
  std::size_t done = 0;
  std::vector<std::optional<Cure>> found(cures);
  const std::size_t threads = std::thread::hardware_concurrency();
  // Least capacities are sought of those alone that are kept.
  const double total = static_cast<double>(jobs.size() + (work.least ? cures * 8 : 0));
  const auto tell = [&](std::size_t more) {
    const std::scoped_lock lock(mutex);
    done += more;
    if (progress) progress(static_cast<double>(done) / total);
  };
  in_parallel(jobs.size(), threads, [&](std::size_t i) {
    const Job& job = jobs[i];
    const bench::ReplayResult result = bench::replay(*job.trace, job.allocator, options);
    Cure cure{job.name, job.allocator, "", result.peak_reserved_bytes, result.peak_allocated_bytes,
              {}};
    if (job.trace != &run.trace) cure.without = job.name.substr(std::string("without ").size());
    {
      const std::scoped_lock lock(mutex);
      std::optional<Cure>& best = found[job.cure];
      if (result.fits && (!best || cure.reserved_bytes < best->reserved_bytes)) best = cure;
    }
    tell(1);
  });
  std::vector<Cure> list;
  std::vector<const Trace*> traces;
  for (std::size_t i = 0; i < cures; ++i) {
    if (!found[i]) continue;  // more than any GPU has
    list.push_back(std::move(*found[i]));
    const std::size_t of_site = i - candidates().size();
    traces.push_back(i < candidates().size() ? &run.trace : &reduced[of_site]);
  }
  if (work.least) {
    in_parallel(list.size(), threads, [&](std::size_t i) {
      const auto fit = bench::least_capacity(*traces[i], list[i].allocator, options);
      if (fit) list[i].least_bytes = fit->least_bytes;
      tell(8);
    });
  }
  return list;
}

}  // namespace gapless::tools
