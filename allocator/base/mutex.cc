#include "allocator/base/mutex.h"

#include "allocator/base/fork.h"

namespace gapless {
namespace {

// About as long as an allocation takes: whoever holds the lock will be done by then, unless it is
// not running.
constexpr int kMostPauses = 64;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Mutex::lock_awaited() {
  if (is_abandoned()) throw ForkedChild();
  for (int pauses = 1; pauses <= kMostPauses; pauses *= 2) {
    for (int i = 0; i < pauses; ++i) pause();
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    if (state == kFree && state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire)) {
      return;
    }
  }
  // Taken as awaited even where nobody else waits: who was asleep cannot tell whether it was the
  // last, and a call too many at unlock() is better than one too few.
  while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
    state_.wait(kAwaited, std::memory_order_relaxed);
  }
}

void Mutex::unlock_awaited() {
  if (is_abandoned()) return;  // its holder forked
  state_.store(kFree);
  state_.notify_one();
}

}  // namespace gapless
