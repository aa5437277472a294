// What recording costs a request.
//
//   recording_bench
//
// cost   allocates a block of a random size and frees it, beside 1,000 live ones, by turns with
//        nothing recorded and with all of it going to a ring, without stacks. `plain_ns` and
//        `recorded_ns` are of an allocation and a free; `event_ns` is what one event adds: half of
//        their difference. Medians of the turns.
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"
#include "allocator/device/event_ring.h"
#include "simgpu/sim_driver.h"

namespace {

using namespace gapless;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPairs = 8192;  // a turn; its events fit into the ring
constexpr std::size_t kRing = 32768;  // the recorder's

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void cost(benchmark::State& state) {
  simgpu::SimDriver gpu({.devices = {{.total_bytes = 1800 * GiB}}});
  DeviceProperties properties;
  gpu.device_properties(0, properties);
  DeviceAllocator allocator(gpu, 0, properties, {});
  std::mt19937_64 random(1);
  const auto draw = [&] { return std::uint64_t{1} << (9 + random() % 14); };
  std::vector<DeviceAddress> live(1000);
  for (DeviceAddress& address : live) (void)allocator.alloc(draw(), 0, address);
  std::vector<std::uint64_t> sizes(kPairs);
  for (std::uint64_t& size : sizes) size = draw();
  const auto turn = [&] {
    const Clock::time_point begin = Clock::now();
    for (const std::uint64_t size : sizes) {
      DeviceAddress address = 0;
      (void)allocator.alloc(size, 0, address);
      benchmark::DoNotOptimize(address);
      (void)allocator.free(address);
    }
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kPairs;
  };
  const auto ring = std::make_shared<EventRing>(kRing);
  std::vector<double> plain;
  std::vector<double> recorded;
  std::uint64_t events = 0;
  (void)turn();
  for (auto _ : state) {
    plain.push_back(turn());
    (void)allocator.begin_recording(ring, nullptr);
    recorded.push_back(turn());
    allocator.end_recording();
    ring->take([&](const AllocatorEvent&) { ++events; });
  }
  if (ring->lost() != 0 || events != recorded.size() * 2 * kPairs) {
    state.SkipWithError("events were lost");
    return;
  }
  state.counters["plain_ns"] = median(plain);
  state.counters["recorded_ns"] = median(recorded);
  state.counters["event_ns"] = (median(recorded) - median(plain)) / 2;
  for (const DeviceAddress address : live) (void)allocator.free(address);
}

}  // namespace

BENCHMARK(cost)->Iterations(1000)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
