// Replays as benchmarks: host time of a pass, and the memory facts as counters.
//
//   replay_bench examples/traces/t5-small-varlen.gtrace --benchmark_counters_tabular=true
//
// Arguments that are files are traces; without any, the generated ones are played. PyTorch's own
// allocators take part where torch_host was built. Times are those
// of the operations alone (UseManualTime): the last of four passes, in which a repeating program
// has warmed up.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "allocator/base/error.h"
#include "allocator/trace/load.h"
#include "bench/peers/peer.h"
#include "bench/replay/in_torch.h"
#include "bench/replay/replay.h"
#include "bench/replay/synthetic.h"

namespace {

using namespace gapless;

void run(benchmark::State& state, const Trace& trace, const std::string& allocator) {
  bench::ReplayOptions options;
  options.passes = 4;
  options.costs = simgpu::load_cost_profile("a100");
  for (auto _ : state) {
    const bench::ReplayResult result = bench::replay(trace, allocator, options);
    state.SetIterationTime(result.times.mean_ns * static_cast<double>(result.operations) / 1e9);
    state.counters["peak_alloc"] = static_cast<double>(result.peak_allocated_bytes);
    state.counters["peak_reserved"] = static_cast<double>(result.peak_reserved_bytes);
    state.counters["overhead_pct"] = result.overhead_percent().value_or(NAN);
    state.counters["calls_first"] = static_cast<double>(result.first_pass.total());
    state.counters["calls_last"] = static_cast<double>(result.last_pass.total());
    state.counters["syncs"] = static_cast<double>(result.all_passes.host_syncs());
    state.counters["mean_ns"] = result.times.mean_ns;
    state.counters["p50_ns"] = result.times.p50_ns;
    state.counters["p99_ns"] = result.times.p99_ns;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(trace.operations()) * state.iterations());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (i > 0 && argv[i][0] != '-') {
      files.emplace_back(argv[i]);
    } else {
      rest.push_back(argv[i]);
    }
  }
  std::vector<std::shared_ptr<Trace>> traces;
  try {
    for (const std::string& file : files) {
      for (Trace& trace : load_traces(file)) {
        traces.push_back(std::make_shared<Trace>(std::move(trace)));
      }
    }
  } catch (const InputError& error) {
    std::fprintf(stderr, "replay_bench: %s\n", error.what());
    return 2;
  }
  if (traces.empty()) {
    for (const std::string& kind : bench::synthetic_kinds()) {
      traces.push_back(std::make_shared<Trace>(bench::synthetic_trace(kind, {.steps = 100})));
    }
  }
  std::vector<std::string> allocators = bench::peer_names();
  if (bench::has_torch_host()) {
    for (const std::string& name : bench::torch_allocator_names()) allocators.push_back(name);
  }
  for (const auto& trace : traces) {
    for (const std::string& allocator : allocators) {
      benchmark::RegisterBenchmark(
          (trace->name + "/" + allocator).c_str(),
          [trace, allocator](benchmark::State& state) { run(state, *trace, allocator); })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
