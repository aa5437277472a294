// Mutex: a lock in one word, whose waiters sleep in std::atomic::wait.
//
//              lock            another one comes            unlock
//     free  ----------->  held  --------------->  awaited  -------> free, and one waiter is woken
//       ^                  |
//       +------ unlock ----+       nobody is told: nobody waits
//
// Without others that want it, lock and unlock are one compare-and-swap each, inline: four fifths
// of what std::mutex takes in a process of several threads, which every PyTorch process is. Who
// finds it held looks again for about as long as an allocation takes before it sleeps: an
// allocation of threads that want it at once takes half as long (docs/experiments/locks.md). And a
// forked child can be kept from waiting for a thread that it has not.
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
    std::uint32_t state = kFree;
    if (!state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire)) [[unlikely]]
      lock_awaited();
  }
  void unlock() {
    std::uint32_t state = kHeld;
    if (!state_.compare_exchange_strong(state, kFree, std::memory_order_release)) [[unlikely]]
      unlock_awaited();
  }

  /// Whoever wants it from now on gets ForkedChild (fork.h). For a child that finds it as some
  /// thread of its parent's left it; the child has one thread yet.
  void abandon() { state_.store(kAbandoned, std::memory_order_relaxed); }
  [[nodiscard]] bool is_abandoned() const {
    return state_.load(std::memory_order_relaxed) == kAbandoned;
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kAwaited = 2;    // held, and somebody may be asleep
  static constexpr std::uint32_t kAbandoned = 3;  // for ever

  void lock_awaited();
  void unlock_awaited();

  std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace gapless
