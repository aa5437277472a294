// What an allocation and a free cost when no driver call is needed.
//
//   fast_path_bench --benchmark_filter=mixed/1000
//
// pair     allocates a block of a random size and frees it, beside so many live blocks: what a
//          temporary costs
// churn    frees one of the live blocks, chosen at random, and allocates another of a random size:
//          every hole changes all the time
// threads  churn by several threads on one device
//
// Lock, address map and all statistics are on. The native model does the same for comparison (in
// pair and churn without a lock, and always without statistics; PyTorch's own has both).
#include <atomic>
#include <bit>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "allocator/base/bytes.h"
#include "bench/peers/peer.h"
#include "bench/peers/workload.h"
#include "simgpu/sim_driver.h"

namespace {

using namespace gapless;
using namespace gapless::bench;

simgpu::SimOptions large_gpu() { return {.devices = {{.total_bytes = 1800 * GiB}}}; }

using Step = void (*)(bench::Peer&, Workload&, std::size_t);

void run(benchmark::State& state, const std::string& allocator, Sizes sizes, Step step) {
  simgpu::SimDriver gpu(large_gpu());
  const auto peer = bench::make_peer(allocator, gpu, 0);
  const auto live = static_cast<std::size_t>(state.range(0));
  Workload work = prepare(*peer, sizes, live, 1);
  for (std::size_t i = 0; i < std::max<std::size_t>(2 * live, kDraws); ++i) churn(*peer, work, i);
  for (std::size_t i = 0; i < kDraws; ++i) step(*peer, work, i);
  std::size_t i = 0;
  for (auto _ : state) step(*peer, work, i++);
  state.SetItemsProcessed(state.iterations());
  for (const DeviceAddress address : work.live) peer->free(address);
}

// Several threads on one device, each with its own live blocks.
void threads(benchmark::State& state, const std::string& allocator, Sizes sizes) {
  static std::unique_ptr<simgpu::SimDriver> gpu;
  static std::unique_ptr<bench::Peer> peer;
  static std::mutex native_lock;  // the model has none; PyTorch's own has one per device
  if (state.thread_index() == 0) {
    gpu = std::make_unique<simgpu::SimDriver>(large_gpu());
    peer = bench::make_peer(allocator, *gpu, 0);
  }
  static std::mutex start;
  const bool locked = allocator != "gapless";
  Workload work;
  bench::Peer* shared = nullptr;
  std::size_t i = 0;
  for (auto _ : state) {
    if (shared == nullptr) {  // inside the loop, where every thread may rely on `peer`
      state.PauseTiming();
      {
        const std::scoped_lock lock(start, native_lock);
        shared = peer.get();
        work = prepare(*shared, sizes, static_cast<std::size_t>(state.range(0)),
                       static_cast<std::uint64_t>(state.thread_index()) + 1);
        for (std::size_t k = 0; k < kDraws; ++k) churn(*shared, work, k);
      }
      state.ResumeTiming();
    }
    if (locked) {
      const std::scoped_lock lock(native_lock);
      churn(*shared, work, i++);
    } else {
      churn(*shared, work, i++);
    }
  }
  state.SetItemsProcessed(state.iterations());
  {
    const std::scoped_lock lock(start, native_lock);
    if (shared != nullptr) {
      for (const DeviceAddress address : work.live) shared->free(address);
    }
  }
  if (state.thread_index() == 0) {
    // Other threads have left the loop, but may still be giving back: the last holder cleans up.
    static std::vector<std::unique_ptr<bench::Peer>> old_peers;
    static std::vector<std::unique_ptr<simgpu::SimDriver>> old_gpus;
    old_peers.push_back(std::move(peer));
    old_gpus.push_back(std::move(gpu));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, Sizes> kinds[] = {
      {"mixed", Sizes::mixed}, {"small", Sizes::small}, {"large", Sizes::large}};
  const std::pair<const char*, Step> steps[] = {{"pair", pair}, {"churn", churn}};
  for (const auto& [what, step] : steps) {
    for (const std::string allocator : {"gapless", "native"}) {
      for (const auto& [name, sizes] : kinds) {
        const auto label = std::string(what) + "/" + allocator + "/" + name;
        auto* one = benchmark::RegisterBenchmark(
            label.c_str(), [allocator, sizes = sizes, step = step](benchmark::State& state) {
              run(state, allocator, sizes, step);
            });
        for (const int live : {1, 16, 1000, 10000, 100000}) one->Arg(live);
      }
    }
  }
  for (const std::string allocator : {"gapless", "native"}) {
    benchmark::RegisterBenchmark(
        ("threads/" + allocator + "/mixed").c_str(),
        [allocator](benchmark::State& state) { threads(state, allocator, Sizes::mixed); })
        ->Arg(1000)
        ->ThreadRange(1, 16)
        ->UseRealTime();
  }
  benchmark::Initialize(&argc, argv);
  // A second thread, for glibc locks without atomic instructions while there is only one, and no
  // PyTorch process has only one.
  std::atomic<bool> done = false;
  std::thread idle([&] { done.wait(false); });
  const bool understood = !benchmark::ReportUnrecognizedArguments(argc, argv);
  if (understood) benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  done = true;
  done.notify_all();
  idle.join();
  return understood ? 0 : 2;
}
