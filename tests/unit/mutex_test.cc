// The lock where threads want it at once; ThreadSanitizer watches in CI.
#include "allocator/base/mutex.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace gapless {
namespace {

using namespace std::chrono_literals;

TEST(Mutex, LetsOneThreadInAtATime) {
  Mutex mutex;
  std::uint64_t count = 0;  // no atomic: ThreadSanitizer watches
  constexpr std::uint64_t kEach = 20000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t k = 0; k < kEach; ++k) {
        const std::scoped_lock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 8 * kEach);
}

// The holder sleeps, so the others do too, and every one of them comes to its turn.
TEST(Mutex, WakesThoseWhoSleep) {
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  mutex.lock();
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const std::scoped_lock lock(mutex);
      ++count;
    });
  }
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(count, 0);
  mutex.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 8);
}

// Nobody looks from time to time whether the lock is free: a wake-up is relied upon.
TEST(Mutex, SleepsUntilItIsWoken) {
  Mutex mutex;
  mutex.lock();
  long switches = 0;
  std::thread waiter([&] {
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_THREAD, &before);
    const std::scoped_lock lock(mutex);
    getrusage(RUSAGE_THREAD, &after);
    switches = after.ru_nvcsw - before.ru_nvcsw;
  });
  std::this_thread::sleep_for(300ms);
  mutex.unlock();
  waiter.join();
  EXPECT_LE(switches, 20);  // it yields a few times before it sleeps
}

// Holders that do not run let the others fall asleep at every moment of lock() and unlock(). One
// wake-up that is lost, and this does not end.
TEST(Mutex, LosesNoWakeUp) {
  for (int round = 0; round < 200; ++round) {
    Mutex mutex;
    std::uint64_t count = 0;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::minstd_rand random(t + 1);
        for (int i = 0; i < 50; ++i) {
          {
            const std::scoped_lock lock(mutex);
            ++count;
            if (random() % 8 == 0) std::this_thread::sleep_for(1us);
          }
          if (random() % 2 == 0) std::this_thread::yield();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(count, 150U);
  }
}

}  // namespace
}  // namespace gapless
