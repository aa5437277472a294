// What a lock and an unlock cost, beside std::mutex, in turns in one process.
//
//   lock_bench                      1, 2 and 4 threads; idle cores, and each with other work
//   lock_bench --turns 1 --ms 2     that it runs
//
// ns of real time for one operation of all threads together, the medians of the turns; "work" is
// what a thread does inside the lock and outside of it before it comes again, in steps of about 1.5
// ns.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sched.h>

#include "allocator/base/mutex.h"

namespace gapless::bench {
namespace {

struct Arguments {
  int turns = 9;
  int ms = 50;
};

struct Work {
  int inside = 0;
  int outside = 0;
};

std::uint64_t work(std::uint64_t x, int steps) {
  for (int i = 0; i < steps; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  return x;
}

// Keeps a result from being optimised away.
void use(std::uint64_t x) { asm volatile("" : : "r"(x)); }

using Clock = std::chrono::steady_clock;

struct Cost {
  double real_ns = 0;
  double cpu_ns = 0;
};

std::uint64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

// Binds this thread to one of the cores, or a scheduler may let all of them run one after another.
void bind_to_core(int number) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  int left = number % CPU_COUNT(&all);
  int core = 0;
  while (!CPU_ISSET(core, &all) || left-- > 0) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  (void)sched_setaffinity(0, sizeof one, &one);
}

template <class Lock>
Cost cost_of(int thread_count, const Work& steps, std::chrono::milliseconds length) {
  Lock lock;
  std::uint64_t shared = 1;
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> operations = 0;
  std::atomic<std::uint64_t> cpu_ns = 0;
  std::vector<Clock::time_point> begun(static_cast<std::size_t>(thread_count));
  std::barrier begin(thread_count + 1);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(thread_count));
  for (int t = 0; t < thread_count; ++t) {
    threads.emplace_back([&, t] {
      bind_to_core(t);
      std::uint64_t own = static_cast<std::uint64_t>(t) + 1;
      std::uint64_t count = 0;
      begin.arrive_and_wait();
      begun[static_cast<std::size_t>(t)] = Clock::now();
      const std::uint64_t since = thread_cpu_ns();
      for (; !stop.load(std::memory_order_relaxed); ++count) {
        {
          const std::scoped_lock held(lock);
          shared = work(shared, steps.inside);
        }
        own = work(own, steps.outside);
      }
      cpu_ns += thread_cpu_ns() - since;
      use(own);
      operations += count;
    });
  }
  begin.arrive_and_wait();
  std::this_thread::sleep_for(length);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  // By the threads' own clock: where cores are busy this thread may be late.
  const std::chrono::duration<double, std::nano> taken =
      Clock::now() - *std::min_element(begun.begin(), begun.end());
  use(shared);
  const auto all = static_cast<double>(std::max<std::uint64_t>(operations, 1));
  return {taken.count() / all, static_cast<double>(cpu_ns) / all};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Threads that leave the others no core of their own.
class BusyCores {
 public:
  explicit BusyCores(unsigned count) {
    threads_.reserve(count);
    for (unsigned i = 0; i < count; ++i) {
      threads_.emplace_back([this, i] {
        bind_to_core(static_cast<int>(i));
        std::uint64_t x = 1;
        while (!stop_.load(std::memory_order_relaxed)) x = work(x, 100);
        use(x);
      });
    }
  }
  BusyCores(const BusyCores&) = delete;
  BusyCores& operator=(const BusyCores&) = delete;
  ~BusyCores() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

void run(const Arguments& arguments) {
  const std::chrono::milliseconds length(arguments.ms);
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  fmt::print("{:<6} {:>7} {:>6} {:>7}  {:>9} {:>6}  {:>9} {:>6}\n", "cores", "threads", "inside",
             "outside", "real, std", "ours", "cpu, std", "ours");
  for (const bool busy : {false, true}) {
    const BusyCores others(busy ? cores : 0);
    for (const int threads : {1, 2, 4}) {
      for (const Work& steps : {Work{0, 0}, Work{15, 15}, Work{15, 60}}) {
        std::vector<double> real;
        std::vector<double> real_ratio;
        std::vector<double> cpu;
        std::vector<double> cpu_ratio;
        for (int turn = 0; turn < arguments.turns; ++turn) {
          const Cost theirs = cost_of<std::mutex>(threads, steps, length);
          const Cost ours = cost_of<Mutex>(threads, steps, length);
          real.push_back(theirs.real_ns);
          real_ratio.push_back(ours.real_ns / theirs.real_ns);
          cpu.push_back(theirs.cpu_ns);
          cpu_ratio.push_back(ours.cpu_ns / theirs.cpu_ns);
        }
        fmt::print("{:<6} {:>7} {:>6} {:>7}  {:>9.1f} {:>6.2f}  {:>9.1f} {:>6.2f}\n",
                   busy ? "busy" : "idle", threads, steps.inside, steps.outside, median(real),
                   median(real_ratio), median(cpu), median(cpu_ratio));
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace gapless::bench

int main(int count, char** words) {
  gapless::bench::Arguments arguments;
  CLI::App app("What the allocator's lock costs, beside std::mutex.");
  app.add_option("--turns", arguments.turns, "of each lock, of which the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_option("--ms", arguments.ms, "of one turn")->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, count, words);
  gapless::bench::run(arguments);
  return 0;
}
