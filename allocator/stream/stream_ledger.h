// StreamLedger: when memory freed on one stream may be used by another.
//
//   stream 1   free free free | free free | free          a free costs no event
//   epoch      ...... 4 ..... | ... 5 ... | 6 (open)
//   events               e4 done      e5 pending
//                        -> frees of epoch <= 4 are good for every stream
//
// Each stream counts epochs. Memory it frees carries the epoch that is open; closing an epoch
// records one event on the stream, which covers all frees before it. Same-stream reuse never asks;
// another stream may use the memory once the epoch is completed. Queries are made only when asked
// (poll), never on the fast path.
//
// Streams are numbered from 1 in the order they were first seen: the Owner of heap/.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/heap/block.h"

namespace gapless {

using Epoch = std::uint32_t;

class StreamLedger {
 public:
  StreamLedger(Driver& driver, DeviceIndex device) : driver_(driver), device_(device) {}
  ~StreamLedger();
  StreamLedger(const StreamLedger&) = delete;
  StreamLedger& operator=(const StreamLedger&) = delete;

  /// The number of a stream; a new one where it was not seen before.
  Owner number_of(StreamHandle stream) {
    if (last_ != 0 && streams_[last_ - 1U].handle == stream) return last_;
    return look_up(stream);
  }
  [[nodiscard]] StreamHandle handle_of(Owner owner) const { return streams_[owner - 1U].handle; }
  [[nodiscard]] std::size_t streams() const { return streams_.size(); }

  /// The epoch that a free on that stream belongs to; notes that there was one.
  Epoch open_epoch(Owner owner) {
    Stream& stream = streams_[owner - 1U];
    stream.has_frees = true;
    return stream.open;
  }
  /// Everything freed in this epoch of the stream and before is good for all streams.
  [[nodiscard]] Epoch completed(Owner owner) const { return streams_[owner - 1U].completed; }

  /// Records an event for the open epoch, unless nothing was freed in it. `force`: even then.
  DriverStatus close_epoch(Owner owner, bool force = false);
  /// Asks the pending events; calls settled(owner, completed epoch) where one completed.
  template <class F>
  DriverStatus poll(F&& settled) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const auto owner = static_cast<Owner>(i + 1);
      bool changed = false;
      const DriverStatus status = poll_one(owner, changed);
      if (changed) settled(owner, streams_[i].completed);
      if (status != DriverStatus::ok) return status;
    }
    return DriverStatus::ok;
  }
  /// Whether any event is pending.
  [[nodiscard]] bool pending() const;
  /// Waits for the device: the host stalls, and all epochs so far are completed.
  DriverStatus finish();

 private:
  struct Pending {
    Epoch epoch;
    EventHandle event;
  };
  struct Stream {
    StreamHandle handle = 0;
    Epoch open = 1;
    Epoch completed = 0;
    bool has_frees = false;
    std::deque<Pending> pending;
  };

  Owner look_up(StreamHandle stream);
  DriverStatus poll_one(Owner owner, bool& changed);
  DriverStatus take_event(EventHandle& event);

  Driver& driver_;
  DeviceIndex device_;
  std::vector<Stream> streams_;
  std::vector<EventHandle> spare_events_;
  Owner last_ = 0;
};

}  // namespace gapless
