// EventLog: what a device's allocator does, written to a ring while a recorder asks for it.
//
//   a request   --> where it comes from, found out without a lock --> the thread's
//   the lock    --> record(alloc, address, bytes, ...)            --> ring, with the thread's stack
//
// It costs a few nanoseconds an event; the clock, which is most of that, is not read for each.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "allocator/base/ticks.h"
#include "allocator/device/event_ring.h"
#include "allocator/device/pools.h"
#include "allocator/heap/block.h"

namespace gapless {

inline void set_event(AllocatorEvent& event, AllocatorEvent::Kind kind, DeviceAddress address,
                      std::uint64_t bytes, StreamHandle stream, PoolId pool) {
  event.address = address;
  event.bytes = bytes;
  event.stream = stream;
  event.pool_creator = static_cast<std::uint32_t>(pool.first);
  event.pool_number = static_cast<std::uint32_t>(pool.second);
  event.kind = kind;
}

class EventLog {
 public:
  /// Who knows where in the program the calling thread is, as a number; asked without a lock before
  /// each request that is recorded.
  using StackSource = std::uint32_t (*)();

  [[nodiscard]] bool is_on() const { return ring_ != nullptr; }
  /// Whether requests are to find out where they come from (find_stack). Needs no lock.
  [[nodiscard]] bool asks_stacks() const {
    return stack_source_.load(std::memory_order_relaxed) != nullptr;
  }
  /// Finds out where the thread's request comes from. Needs no lock.
  void find_stack() const {
    if (const auto source = stack_source_.load(std::memory_order_relaxed)) stack() = source();
  }

  /// `stacks`: may be nullptr.
  void begin(std::shared_ptr<EventRing> ring, StackSource stacks) {
    ring_ = std::move(ring);
    stack_source_.store(stacks, std::memory_order_relaxed);
  }
  void end() { begin(nullptr, nullptr); }
  /// Another source for the recording that there is, if it has one.
  void change_stack_source(StackSource stacks) {
    if (asks_stacks()) stack_source_.store(stacks, std::memory_order_relaxed);
  }

  /// Whose block an event is about.
  struct Whose {
    StreamHandle stream = 0;
    PoolId pool;
  };
  /// Those of the owner in that heap, by look_up() where the last event was another's.
  template <class F>
  [[gnu::always_inline]] const Whose& whose(const void* heap, Owner owner, F&& look_up) {
    if (owner != last_owner_ || heap != last_heap_) [[unlikely]] {
      last_ = look_up();
      last_owner_ = owner;
      last_heap_ = heap;
    }
    return last_;
  }

  [[gnu::always_inline]] void record(AllocatorEvent::Kind kind, DeviceAddress address,
                                     std::uint64_t bytes, StreamHandle stream, PoolId pool = {}) {
    AllocatorEvent* const event = ring_->next();
    if (event == nullptr) return;
    set_event(*event, kind, address, bytes, stream, pool);
    const bool stacks = asks_stacks();
    event->stack = stacks ? stack() : 0;
    // One without a time happens after the event before it, and whoever takes events out of the
    // ring knows when it looked last.
    constexpr std::uint32_t kTimed = 8;
    const bool timed = ++recorded_ % kTimed == 0;
    event->ticks = timed || (stacks && kind != AllocatorEvent::Kind::free) ? ticks() : 0;
    ring_->publish();
  }

 private:
  // Where the thread's request comes from, while it is served.
  static std::uint32_t& stack() {
    thread_local constinit std::uint32_t stack = 0;
    return stack;
  }

  std::shared_ptr<EventRing> ring_;  // nullptr: nothing is recorded
  std::atomic<StackSource> stack_source_{nullptr};
  std::uint32_t recorded_ = 0;
  const void* last_heap_ = nullptr;
  Owner last_owner_ = 0;
  Whose last_;
};

}  // namespace gapless
