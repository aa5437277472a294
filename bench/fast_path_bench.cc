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

// A simulated GPU with one allocator over it, which goes first.
struct Machine {
  explicit Machine(const std::string& allocator) : peer(bench::make_peer(allocator, gpu, 0)) {}

  simgpu::SimDriver gpu{large_gpu()};
  std::unique_ptr<bench::Peer> peer;
  std::mutex native_lock;  // the model has none; PyTorch's own has one per device
};

// What the threads of one run share: made by the first that comes, gone with the last that leaves.
// None leaves before all have come, for their loops begin together.
class MeetingPlace {
 public:
  struct Shared : Machine {
    using Machine::Machine;
    std::vector<DeviceAddress> live;  // of all threads, one after the other
  };
  std::shared_ptr<Shared> come(const std::string& allocator, Sizes sizes, std::size_t live) {
    const std::scoped_lock lock(lock_);
    auto shared = shared_.lock();
    if (!shared) {
      shared_ = shared = std::make_shared<Shared>(allocator);
      Workload work = prepare(*shared->peer, sizes, live, 1);
      for (std::size_t i = 0; i < std::max(2 * live, kDraws); ++i) churn(*shared->peer, work, i);
      shared->live = std::move(work.live);
    }
    return shared;
  }

 private:
  std::mutex lock_;
  std::weak_ptr<Shared> shared_;
};

using Step = void (*)(bench::Peer&, Workload&, std::size_t);

void run(benchmark::State& state, const std::string& allocator, Sizes sizes, Step step) {
  const Machine machine(allocator);
  bench::Peer& peer = *machine.peer;
  const auto live = static_cast<std::size_t>(state.range(0));
  Workload work = prepare(peer, sizes, live, 1);
  for (std::size_t i = 0; i < std::max<std::size_t>(2 * live, kDraws); ++i) churn(peer, work, i);
  for (std::size_t i = 0; i < kDraws; ++i) step(peer, work, i);
  std::size_t i = 0;
  for (auto _ : state) step(peer, work, i++);
  state.SetItemsProcessed(state.iterations());
  for (const DeviceAddress address : work.live) peer.free(address);
}

// Several threads on one device, each with its own live blocks.
void threads(benchmark::State& state, MeetingPlace& place, const std::string& allocator,
             Sizes sizes) {
  const auto own = static_cast<std::size_t>(state.range(0));
  const auto count = static_cast<std::size_t>(state.threads());
  const auto machine = place.come(allocator, sizes, own * count);
  bench::Peer& peer = *machine->peer;
  const auto index = static_cast<std::size_t>(state.thread_index());
  std::mt19937_64 random(index + 2);
  Workload work = draw_work(sizes, own, random);
  const auto first = machine->live.begin() + static_cast<std::ptrdiff_t>(index * own);
  work.live.assign(first, first + static_cast<std::ptrdiff_t>(own));
  std::size_t i = 0;
  if (allocator == "gapless") {
    for (auto _ : state) churn(peer, work, i++);
  } else {
    for (auto _ : state) {
      const std::scoped_lock lock(machine->native_lock);
      churn(peer, work, i++);
    }
  }
  state.SetItemsProcessed(state.iterations());
  const std::scoped_lock lock(machine->native_lock);
  for (const DeviceAddress address : work.live) peer.free(address);
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
        [allocator, place = std::make_shared<MeetingPlace>()](benchmark::State& state) {
          threads(state, *place, allocator, Sizes::mixed);
        })
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
