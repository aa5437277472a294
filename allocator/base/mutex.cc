#include "allocator/base/mutex.h"

#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/fork.h"

namespace gapless {
namespace {

// About as long as an allocation takes: whoever holds the lock will be done by then, unless it is
// not running.
constexpr int kSpins = 100;
constexpr timespec kLongestSleep{0, 1'000'000};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
  return syscall(SYS_futex, &word, operation, value, &kLongestSleep, nullptr, 0);
}

}  // namespace

void Mutex::wait() {
  if (is_abandoned()) throw ForkedChild();
  for (int i = 0; i < kSpins; ++i) {
    pause();
    if (taken_.load(std::memory_order_relaxed) == 0 &&
        taken_.exchange(1, std::memory_order_acquire) == 0) {
      return;
    }
  }
  waiting_.fetch_add(1);
  while (taken_.exchange(1, std::memory_order_acquire) != 0) {
    futex(taken_, FUTEX_WAIT_PRIVATE, 1);
    waking_.store(0, std::memory_order_relaxed);
  }
  waiting_.fetch_sub(1);
  waking_.store(0, std::memory_order_relaxed);
}

void Mutex::wake() {
  // One on its way is enough: a call for every unlock would cost more than the lock.
  if (waking_.load(std::memory_order_relaxed) != 0) return;
  waking_.store(1, std::memory_order_relaxed);
  if (futex(taken_, FUTEX_WAKE_PRIVATE, 1) == 0) waking_.store(0, std::memory_order_relaxed);
}

}  // namespace gapless
