// DeferredFrees: what PyTorch's own allocator would not count as free yet.
//
// A block that other streams use too (record_stream) is freed: PyTorch's allocator keeps it until
// events recorded then on those streams have completed, and counts it as active meanwhile. Here
// the memory is free at once, in order of the streams (stream/); programs that read active_bytes
// still see what they would see there.
//
//   free(block used by streams 2 and 3)     an event on each       active 4 MiB, allocated 0
//   alloc(...), both events done                                   active 0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "allocator/stream/event_pool.h"

namespace gapless {

class DeferredFrees {
 public:
  explicit DeferredFrees(Driver& driver) : driver_(driver), events_(driver) {}
  DeferredFrees(const DeferredFrees&) = delete;
  DeferredFrees& operator=(const DeferredFrees&) = delete;
  ~DeferredFrees() { finish(); }

  /// A block was freed that these streams used; done() is called when they have come past it: in
  /// poll(), or at once where they cannot be asked.
  void add(const std::vector<DeviceStream>& uses, std::function<void()> done);
  [[nodiscard]] bool empty() const { return by_stream_.empty(); }
  /// Asks each stream's oldest events.
  void poll();
  /// The device was waited for: all are done.
  void finish();

 private:
  // Calls done when the last of its events is.
  struct Free {
    std::function<void()> done;

    explicit Free(std::function<void()> f) : done(std::move(f)) {}
    Free(const Free&) = delete;
    Free& operator=(const Free&) = delete;
    ~Free() { done(); }
  };
  struct Waiting {
    EventHandle event = 0;
    std::shared_ptr<Free> free;
  };

  Driver& driver_;
  EventPool events_;
  std::map<DeviceStream, std::deque<Waiting>> by_stream_;
};

}  // namespace gapless
