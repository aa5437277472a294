// EventRing: what a device's allocator does, handed to one thread that writes it down.
//
//   requests (the device's lock is held)             the recorder's thread
//     push -> [ alloc | free | alloc |  ...  ] -> take    no lock on either side
//              ^ taken                ^ pushed
//
// Nobody waits: where the ring is full events are lost, and counted, and the next one that finds
// room comes after one that says how many were.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless {

struct AllocatorEvent {
  enum class Kind : std::uint8_t {
    alloc,
    free_requested,  // given up by the program, but pinned
    free,
    mapped,  // memory came to these addresses
    unmapped,
    out_of_memory,  // address: bytes free on the device
    lost,           // bytes: how many events
  };
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;  // as asked for
  StreamHandle stream = 0;
  std::uint64_t ticks = 0;         // base/ticks.h; 0: some time after the one before
  std::uint32_t stack = 0;         // of the program; 0: unknown
  std::uint32_t pool_creator = 0;  // the pool's id, whose numbers are small
  std::uint32_t pool_number = 0;
  Kind kind = Kind::alloc;
};

class EventRing {
 public:
  /// `events`: how many it holds, a power of two.
  explicit EventRing(std::size_t events) : events_(events), mask_(events - 1) {}

  /// The place of the next event, which is to be filled in and then published; nullptr: it is
  /// lost. By one thread at a time.
  [[gnu::always_inline]] AllocatorEvent* next() {
    if (pushed_here_ - taken_seen_ >= mask_) [[unlikely]] {
      taken_seen_ = taken_.load(std::memory_order_acquire);
      if (pushed_here_ - taken_seen_ >= mask_) {
        lost_now_ += 1;
        lost_.fetch_add(1, std::memory_order_relaxed);
        return nullptr;
      }
    }
    if (lost_now_ != 0) [[unlikely]]
      publish_loss();
    return &first_[pushed_here_ & mask_];
  }
  [[gnu::always_inline]] void publish() {
    pushed_.store(++pushed_here_, std::memory_order_release);
  }
  void push(const AllocatorEvent& event) {
    AllocatorEvent* const place = next();
    if (place == nullptr) return;
    *place = event;
    publish();
  }

  /// By one other thread: calls f(event) for each that is there.
  template <class F>
  void take(F&& f) {
    const std::uint64_t end = pushed_.load(std::memory_order_acquire);
    for (std::uint64_t at = taken_.load(std::memory_order_relaxed); at != end; ++at) {
      f(std::as_const(events_[at & mask_]));
      taken_.store(at + 1, std::memory_order_release);
    }
  }

  [[nodiscard]] std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  // There is room for two.
  [[gnu::noinline]] void publish_loss() {
    AllocatorEvent& lost = first_[pushed_here_ & mask_];
    lost = {};
    lost.kind = AllocatorEvent::Kind::lost;
    lost.bytes = lost_now_;
    lost_now_ = 0;
    publish();
  }

  static constexpr std::size_t kLine = 64;  // of a cache

  std::vector<AllocatorEvent> events_;
  AllocatorEvent* first_ = events_.data();
  std::uint64_t mask_;
  alignas(kLine) std::atomic<std::uint64_t> pushed_{0};
  std::uint64_t pushed_here_ = 0;  // as who pushes knows without asking
  std::uint64_t taken_seen_ = 0;
  std::uint64_t lost_now_ = 0;  // since the last one that found room
  std::atomic<std::uint64_t> lost_{0};
  alignas(kLine) std::atomic<std::uint64_t> taken_{0};
};

}  // namespace gapless
