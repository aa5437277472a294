// Mutex: a lock that costs one atomic exchange when nobody else wants it.
//
//   lock     exchange(1); it was 0: the lock is ours
//            else spin a little, then say that we wait, and sleep
//   unlock   store 0; someone waits: wake one
//
// std::mutex takes two atomic exchanges and two calls in a process of several threads, which every
// PyTorch process is (docs/measurements.md). Here unlock() is a plain store. The price: a waiter
// that begins to sleep at that very moment may not be seen, so waiters sleep a millisecond at most
// before they look again.
#pragma once

#include <atomic>
#include <cstdint>

namespace gapless {

/// Meets the standard's BasicLockable. Not fair, not recursive.
class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    if (taken_.exchange(1, std::memory_order_acquire) != 0) wait();
  }
  /// Whoever wants it from now on gets ForkedChild (fork.h). For a child that finds it as some
  /// thread of its parent's left it.
  void abandon() {
    abandoned_.store(true, std::memory_order_relaxed);
    taken_.store(1, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

  void unlock() {
    taken_.store(0, std::memory_order_release);
    if (waiting_.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  void wait();
  void wake();

  std::atomic<std::uint32_t> taken_{0};
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<std::uint32_t> waking_{0};  // one was woken and has not come to it yet
  std::atomic<bool> abandoned_{false};
};

}  // namespace gapless
