// Time on the simulated GPU: a virtual clock, streams, events, and who knows what is finished.
//
//   host     --launch A--launch B-----record e--query e: not_ready------------query e: ok
//   stream 1    [=== A ===][===== B =====]e
//                                         ^ e completes when the clock gets here
//
// The clock moves when the host spends time (a driver call's cost, advance()) or waits. Beside the
// clock runs logical time: each stream numbers its work, and a vector clock per stream, event and
// for the host says which work is *known* to be finished before what comes next. The clock answers
// queries; the vector clocks judge, so that a missing wait is found even where the timing happened
// to be kind.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless::simgpu {

/// The n-th piece of work of a stream (counted from 1).
struct Stamp {
  std::uint32_t stream = 0;  // index, not handle
  std::uint64_t number = 0;
};

class Timeline {
 public:
  explicit Timeline(std::int32_t devices);

  [[nodiscard]] std::uint64_t now_ns() const { return now_ns_; }
  void advance(std::uint64_t ns) { now_ns_ += ns; }

  StreamHandle create_stream(DeviceIndex device);
  /// The stream's index; nothing for an unknown or destroyed handle or another device's stream.
  [[nodiscard]] std::optional<std::uint32_t> find_stream(DeviceIndex device,
                                                         StreamHandle handle) const;
  void destroy_stream(StreamHandle handle) { streams_by_handle_.erase(handle); }

  /// Puts work of that duration on the stream.
  Stamp submit(std::uint32_t stream, std::uint64_t duration_ns);

  EventHandle create_event(DeviceIndex device);
  [[nodiscard]] bool has_event(EventHandle event) const { return events_.contains(event); }
  [[nodiscard]] DeviceIndex device_of_event(EventHandle event) const {
    return events_.at(event).device;
  }
  void destroy_event(EventHandle event) { events_.erase(event); }
  void record(EventHandle event, std::uint32_t stream);
  /// Whether the event's work is done; where it is, the host knows from now on.
  bool query(EventHandle event);
  void wait_event(std::uint32_t stream, EventHandle event);
  /// When the event's work is or was done, on the clock.
  [[nodiscard]] std::uint64_t done_ns(EventHandle event) const { return events_.at(event).done_ns; }

  /// Whether all of the stream's work is done by now.
  [[nodiscard]] bool idle(std::uint32_t stream) const {
    return streams_[stream].busy_until_ns <= now_ns_;
  }

  /// When all of the stream's work will be done.
  [[nodiscard]] std::uint64_t busy_until_ns(std::uint32_t stream) const {
    return streams_[stream].busy_until_ns;
  }
  /// When all work that the device's streams were given so far will be done, on the clock.
  [[nodiscard]] std::uint64_t work_end_ns(DeviceIndex device) const;

  /// The host waits: the clock moves to the end of that work, and the host knows it is done.
  void synchronize_event(EventHandle event);
  void synchronize_stream(std::uint32_t stream);
  void synchronize_device(DeviceIndex device);

  /// Whether what `stream` does next runs after that work for certain.
  [[nodiscard]] bool ordered_before(const Stamp& stamp, std::uint32_t stream) const;
  /// Whether the host knows that the work is finished.
  [[nodiscard]] bool host_knows(const Stamp& stamp) const;

  [[nodiscard]] std::size_t live_events() const { return events_.size(); }

 private:
  using VectorClock = std::vector<std::uint64_t>;
  struct Stream {
    DeviceIndex device = 0;
    std::uint64_t busy_until_ns = 0;
    std::uint64_t last_number = 0;
    VectorClock knows;
    bool used = false;  // was given work, or something to wait for
  };
  struct Event {
    DeviceIndex device = 0;
    std::uint64_t done_ns = 0;
    VectorClock knows;
  };

  /// The stream, which from now on is one of those that have done something.
  Stream& used(std::uint32_t stream);
  static void join(VectorClock& into, const VectorClock& from);
  static std::uint64_t entry(const VectorClock& clock, std::uint32_t stream);
  /// Everything the stream has been given, and what that was ordered after.
  [[nodiscard]] VectorClock after(std::uint32_t stream) const;

  std::uint64_t now_ns_ = 0;
  std::vector<Stream> streams_;  // the first ones are the devices' default streams
  std::vector<std::uint32_t> used_streams_;
  std::map<StreamHandle, std::uint32_t> streams_by_handle_;
  std::map<EventHandle, Event> events_;
  std::uint64_t next_handle_ = 0x1000;
  VectorClock host_knows_;
  std::int32_t devices_;
};

}  // namespace gapless::simgpu
