// What a request of gigabytes costs the host on a device of 140 GiB.
//
//   large_heap_bench --benchmark_filter=pages:1
//
// 140 GiB of blocks of 32 MiB to 3 GiB, of which one to four are freed and others of random sizes
// allocated, over and over: few of them fit where one was freed, so most of them go to windows.
// Where handles are single pages (pages:1) there are 71,680 to be chosen from. In ns: `p50` and
// `p99` of requests that made no driver call, and of those that did, less the time of these calls.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "allocator/base/bytes.h"
#include "allocator/driver/counting_driver.h"
#include "bench/peers/peer.h"
#include "simgpu/sim_driver.h"

namespace {

using namespace gapless;

constexpr std::uint64_t kHeap = 140 * GiB;

std::uint64_t draw_bytes(std::mt19937_64& random) {
  // As many between 32 and 64 MiB as between 1 and 2 GiB.
  const double exponent = std::uniform_real_distribution<double>(5, 11.5)(random);
  return static_cast<std::uint64_t>(std::exp2(exponent) * MiB);
}

double at_part(std::vector<double>& values, double part) {
  if (values.empty()) return 0;
  const auto place = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

void large_heap(benchmark::State& state, const std::string& allocator,
                const std::string& settings) {
  simgpu::SimDriver gpu({.devices = {{.total_bytes = kHeap + 20 * GiB}}});
  CountingDriver driver(gpu);
  const auto peer = bench::make_peer(allocator, driver, 0, settings);
  std::mt19937_64 random(1);
  std::vector<std::pair<DeviceAddress, std::uint64_t>> live;
  std::uint64_t live_bytes = 0;
  std::vector<double> quick;
  std::vector<double> mapping;
  const auto fill = [&] {
    for (;;) {
      const std::uint64_t bytes = draw_bytes(random);
      if (live_bytes + bytes > kHeap) return;
      const DriverCallCounts before = driver.counts();
      const auto begin = std::chrono::steady_clock::now();
      const DeviceAddress address = peer->alloc(bytes, 0, 0);
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - begin;
      if (address == 0) return;
      const DriverCallCounts made = driver.counts().since(before);
      auto& times = made.total() == 0 ? quick : mapping;
      times.push_back(took.count() - static_cast<double>(made.total_ns()));
      live.emplace_back(address, bytes);
      live_bytes += bytes;
    }
  };
  const auto step = [&] {
    for (auto count = 1 + random() % 4; count != 0 && !live.empty(); --count) {
      auto& victim = live[random() % live.size()];
      peer->free(victim.first);
      live_bytes -= victim.second;
      victim = live.back();
      live.pop_back();
    }
    fill();
  };
  fill();
  for (int warm_up = 0; warm_up < 1000; ++warm_up) step();
  quick.clear();
  mapping.clear();
  for (auto _ : state) step();
  state.counters["p50"] = at_part(quick, 0.5);
  state.counters["p99"] = at_part(quick, 0.99);
  state.counters["mapping_p50"] = at_part(mapping, 0.5);
  state.counters["mapping_p99"] = at_part(mapping, 0.99);
  state.counters["quick"] = static_cast<double>(quick.size());
  state.counters["mapped"] = static_cast<double>(mapping.size());
  for (const auto& block : live) peer->free(block.first);
}

}  // namespace

int main(int argc, char** argv) {
  for (const char* settings : {"handle_parts:0", ""}) {
    const std::string name = settings[0] == '\0' ? "pages:many" : "pages:1";
    benchmark::RegisterBenchmark(("gapless/" + name).c_str(), large_heap, "gapless", settings)
        ->Iterations(2000);
  }
  benchmark::RegisterBenchmark("native", large_heap, "native", "")->Iterations(2000);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
