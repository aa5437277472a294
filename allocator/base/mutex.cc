#include "allocator/base/mutex.h"

#include "allocator/base/fork.h"

namespace gapless {

void Mutex::lock_awaited() {
  if (is_abandoned()) throw ForkedChild();
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
