#include "allocator/device/deferred_frees.h"

#include <utility>

namespace gapless {

void DeferredFrees::add(const std::vector<DeviceStream>& uses, std::function<void()> done) {
  const auto free = std::make_shared<Free>(std::move(done));
  for (const DeviceStream& stream : uses) {
    EventHandle event = 0;
    if (events_.record(stream, event) == DriverStatus::ok) {
      by_stream_[stream].push_back({event, free});
    }
  }
}

void DeferredFrees::poll() {
  for (auto stream = by_stream_.begin(); stream != by_stream_.end();) {
    auto& [of, waiting] = *stream;
    while (!waiting.empty() &&
           driver_.event_query(of.device, waiting.front().event) != DriverStatus::not_ready) {
      events_.put_back(of.device, waiting.front().event);
      waiting.pop_front();
    }
    stream = waiting.empty() ? by_stream_.erase(stream) : std::next(stream);
  }
}

void DeferredFrees::finish() {
  for (const auto& [stream, waiting] : std::exchange(by_stream_, {})) {
    for (const Waiting& one : waiting) events_.put_back(stream.device, one.event);
  }
}

}  // namespace gapless
