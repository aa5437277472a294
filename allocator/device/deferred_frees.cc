#include "allocator/device/deferred_frees.h"

#include <utility>

namespace gapless {

DeferredFrees::~DeferredFrees() {
  finish();
  for (const EventHandle event : spare_events_) driver_.event_destroy(device_, event);
}

bool DeferredFrees::record(StreamHandle stream, EventHandle& event) {
  if (!spare_events_.empty()) {
    event = spare_events_.back();
    spare_events_.pop_back();
  } else if (driver_.event_create(device_, event) != DriverStatus::ok) {
    return false;
  }
  if (driver_.event_record(device_, event, stream) == DriverStatus::ok) return true;
  spare_events_.push_back(event);
  return false;
}

void DeferredFrees::add(const std::vector<StreamHandle>& uses, std::function<void()> done) {
  const auto free = std::make_shared<Free>(std::move(done));
  for (const StreamHandle stream : uses) {
    EventHandle event = 0;
    if (record(stream, event)) by_stream_[stream].push_back({event, free});
  }
}

void DeferredFrees::poll() {
  for (auto stream = by_stream_.begin(); stream != by_stream_.end();) {
    std::deque<Waiting>& waiting = stream->second;
    while (!waiting.empty() &&
           driver_.event_query(device_, waiting.front().event) != DriverStatus::not_ready) {
      spare_events_.push_back(waiting.front().event);
      waiting.pop_front();
    }
    stream = waiting.empty() ? by_stream_.erase(stream) : std::next(stream);
  }
}

void DeferredFrees::finish() {
  for (const auto& [stream, waiting] : std::exchange(by_stream_, {})) {
    for (const Waiting& one : waiting) spare_events_.push_back(one.event);
  }
}

}  // namespace gapless
