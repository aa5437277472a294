#include "simgpu/timeline.h"

#include <algorithm>
#include <utility>

namespace gapless::simgpu {

Timeline::Timeline(std::int32_t devices) : devices_(devices) {
  for (DeviceIndex device = 0; device < devices; ++device) streams_.push_back({.device = device});
}

void Timeline::join(VectorClock& into, const VectorClock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

std::uint64_t Timeline::entry(const VectorClock& clock, std::uint32_t stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

Timeline::Stream& Timeline::used(std::uint32_t stream) {
  Stream& queue = streams_[stream];
  if (!std::exchange(queue.used, true)) used_streams_.push_back(stream);
  return queue;
}

Timeline::VectorClock Timeline::after(std::uint32_t stream) const {
  if (streams_[stream].last_number == 0) return streams_[stream].knows;
  VectorClock clock = streams_[stream].knows;
  if (clock.size() <= stream) clock.resize(stream + 1, 0);
  clock[stream] = streams_[stream].last_number;
  return clock;
}

StreamHandle Timeline::create_stream(DeviceIndex device) {
  const StreamHandle handle = next_handle_;
  next_handle_ += 16;
  streams_by_handle_[handle] = static_cast<std::uint32_t>(streams_.size());
  streams_.push_back({.device = device});
  return handle;
}

std::optional<std::uint32_t> Timeline::find_stream(DeviceIndex device, StreamHandle handle) const {
  if (handle == 0) {
    if (device < 0 || device >= devices_) return {};
    return static_cast<std::uint32_t>(device);
  }
  const auto found = streams_by_handle_.find(handle);
  if (found == streams_by_handle_.end() || streams_[found->second].device != device) return {};
  return found->second;
}

Stamp Timeline::submit(std::uint32_t stream, std::uint64_t duration_ns) {
  Stream& queue = used(stream);
  join(queue.knows, host_knows_);  // the host gives work only after what it knows to be done
  queue.busy_until_ns = std::max(queue.busy_until_ns, now_ns_) + duration_ns;
  return {stream, ++queue.last_number};
}

EventHandle Timeline::create_event(DeviceIndex device) {
  const EventHandle handle = next_handle_;
  next_handle_ += 16;
  events_[handle] = {device, 0, {}};
  return handle;
}

void Timeline::record(EventHandle event, std::uint32_t stream) {
  Event& state = events_[event];
  state = {state.device, std::max(streams_[stream].busy_until_ns, now_ns_), after(stream)};
}

bool Timeline::query(EventHandle event) {
  const Event& state = events_[event];
  if (state.done_ns > now_ns_) return false;
  join(host_knows_, state.knows);
  return true;
}

void Timeline::wait_event(std::uint32_t stream, EventHandle event) {
  const Event& state = events_[event];
  Stream& queue = used(stream);
  queue.busy_until_ns = std::max(queue.busy_until_ns, state.done_ns);
  join(queue.knows, state.knows);
}

void Timeline::synchronize_event(EventHandle event) {
  now_ns_ = std::max(now_ns_, events_[event].done_ns);
  join(host_knows_, events_[event].knows);
}

void Timeline::synchronize_stream(std::uint32_t stream) {
  now_ns_ = std::max(now_ns_, streams_[stream].busy_until_ns);
  join(host_knows_, after(stream));
}

void Timeline::synchronize_device(DeviceIndex device) {
  for (const std::uint32_t stream : used_streams_) {
    if (streams_[stream].device == device) synchronize_stream(stream);
  }
}

std::uint64_t Timeline::work_end_ns(DeviceIndex device) const {
  std::uint64_t end = now_ns_;
  for (const std::uint32_t stream : used_streams_) {
    if (streams_[stream].device == device) end = std::max(end, streams_[stream].busy_until_ns);
  }
  return end;
}

bool Timeline::ordered_before(const Stamp& stamp, std::uint32_t stream) const {
  return stamp.stream == stream || entry(streams_[stream].knows, stamp.stream) >= stamp.number ||
         host_knows(stamp);
}

bool Timeline::host_knows(const Stamp& stamp) const {
  return entry(host_knows_, stamp.stream) >= stamp.number;
}

}  // namespace gapless::simgpu
