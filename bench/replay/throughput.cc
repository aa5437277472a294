#include "bench/replay/throughput.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

namespace gapless::bench {
namespace {

constexpr std::size_t kLive = 64;
constexpr std::size_t kPairs = 100000;  // by each thread
constexpr int kRounds = 5;

std::uint64_t draw(std::mt19937_64& random) {
  const std::uint64_t base = std::uint64_t{1} << (9 + random() % 8);
  return base + random() % base;
}

class Worker {
 public:
  Worker(Peer& peer, StreamHandle stream, std::uint64_t seed)
      : peer_(peer), stream_(stream), random_(seed), sizes_(4096), live_(kLive) {
    for (std::uint64_t& size : sizes_) size = draw(random_);
    for (DeviceAddress& slot : live_) slot = peer_.alloc(draw(random_), stream_, 0);
  }
  void churn(std::size_t pairs) {
    for (std::size_t i = 0; i < pairs; ++i) {
      DeviceAddress& slot = live_[i * 7 % kLive];
      peer_.free(slot);
      slot = peer_.alloc(sizes_[i % sizes_.size()], stream_, 0);
    }
  }
  void finish() {
    for (const DeviceAddress address : live_) peer_.free(address);
  }

 private:
  Peer& peer_;
  StreamHandle stream_;
  std::mt19937_64 random_;
  std::vector<std::uint64_t> sizes_;
  std::vector<DeviceAddress> live_;
};

}  // namespace

double pair_ns(Peer& peer, const std::vector<StreamHandle>& streams) {
  std::vector<Worker> workers;
  for (std::size_t i = 0; i < streams.size(); ++i) workers.emplace_back(peer, streams[i], i);
  for (Worker& worker : workers) worker.churn(4 * kLive);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    threads.reserve(workers.size());
    for (Worker& worker : workers) {
      threads.emplace_back([&] {
        ++ready;
        while (!go) std::this_thread::yield();
        worker.churn(kPairs);
      });
    }
    while (ready != workers.size()) std::this_thread::yield();
    const auto begin = std::chrono::steady_clock::now();
    go = true;
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    const double each = took.count() / static_cast<double>(kPairs * workers.size());
    if (round == 0 || each < best) best = each;
  }
  for (Worker& worker : workers) worker.finish();
  return best;
}

}  // namespace gapless::bench
