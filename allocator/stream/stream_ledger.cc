#include "allocator/stream/stream_ledger.h"

#include <algorithm>

namespace gapless {

StreamLedger::~StreamLedger() {
  for (Stream& stream : streams_) {
    for (const Pending& pending : stream.pending) spare_events_.push_back(pending.event);
  }
  for (const EventHandle event : spare_events_) driver_.event_destroy(device_, event);
}

Owner StreamLedger::look_up(StreamHandle handle) {
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const Stream& stream) { return stream.handle == handle; });
  last_ = static_cast<Owner>(found - streams_.begin() + 1);
  if (found == streams_.end()) {
    streams_.emplace_back();
    streams_.back().handle = handle;
  }
  return last_;
}

DriverStatus StreamLedger::take_event(EventHandle& event) {
  if (spare_events_.empty()) return driver_.event_create(device_, event);
  event = spare_events_.back();
  spare_events_.pop_back();
  return DriverStatus::ok;
}

DriverStatus StreamLedger::close_epoch(Owner owner, bool force) {
  Stream& stream = streams_[owner - 1U];
  if (!stream.has_frees && !force) return DriverStatus::ok;
  EventHandle event = 0;
  if (const DriverStatus status = take_event(event); status != DriverStatus::ok) return status;
  if (const DriverStatus status = driver_.event_record(device_, event, stream.handle);
      status != DriverStatus::ok) {
    spare_events_.push_back(event);
    return status;
  }
  stream.pending.push_back({stream.open, event});
  ++stream.open;
  stream.has_frees = false;
  return DriverStatus::ok;
}

DriverStatus StreamLedger::poll_one(Owner owner, bool& changed) {
  Stream& stream = streams_[owner - 1U];
  while (!stream.pending.empty()) {
    const DriverStatus status = driver_.event_query(device_, stream.pending.front().event);
    if (status == DriverStatus::not_ready) break;
    if (status != DriverStatus::ok) return status;
    stream.completed = stream.pending.front().epoch;
    spare_events_.push_back(stream.pending.front().event);
    stream.pending.pop_front();
    changed = true;
  }
  return DriverStatus::ok;
}

bool StreamLedger::pending() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return !stream.pending.empty(); });
}

DriverStatus StreamLedger::finish() {
  // One call for all streams; it also covers streams that the program has destroyed meanwhile.
  if (const DriverStatus status = driver_.device_synchronize(device_); status != DriverStatus::ok) {
    return status;
  }
  for (Stream& stream : streams_) {
    for (const Pending& pending : stream.pending) spare_events_.push_back(pending.event);
    stream.pending.clear();
    stream.completed = stream.open++;
    stream.has_frees = false;
  }
  return DriverStatus::ok;
}

}  // namespace gapless
