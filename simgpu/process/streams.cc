#include "simgpu/process/streams.h"

#include <algorithm>
#include <chrono>

namespace gapless::simgpu {
namespace {

std::uint64_t host_now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

Streams::Streams(int devices) : timeline_(devices), host_ns_(host_now_ns()) {
  for (int device = 0; device < devices; ++device) {
    auto stream = std::make_unique<Stream>();
    stream->device = device;
    stream->index = *timeline_.find_stream(device, 0);
    live_.insert(stream.get());
    defaults_.push_back(std::move(stream));
  }
}

void Streams::tick() {
  const std::uint64_t now = host_now_ns();
  timeline_.advance(now - host_ns_);
  host_ns_ = now;
}

Stream* Streams::create(DeviceIndex device, unsigned flags, int priority) {
  auto* stream = new Stream;
  stream->device = device;
  stream->handle = timeline_.create_stream(device);
  stream->index = *timeline_.find_stream(device, stream->handle);
  stream->flags = flags;
  stream->priority = priority;
  stream->id = ++next_id_;
  live_.insert(stream);
  return stream;
}

void Streams::destroy(Stream* stream) {
  timeline_.destroy_stream(stream->handle);
  live_.erase(stream);
  delete stream;
}

Stream* Streams::find(void* handle, DeviceIndex current) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number <= 2) return defaults_[static_cast<std::size_t>(current)].get();
  auto* stream = static_cast<Stream*>(handle);
  return known(stream) ? stream : nullptr;
}

Event* Streams::create_event(DeviceIndex device, unsigned flags) {
  auto* event = new Event;
  event->device = device;
  event->handle = timeline_.create_event(device);
  event->flags = flags;
  live_events_.insert(event);
  return event;
}

void Streams::destroy_event(Event* event) {
  timeline_.destroy_event(event->handle);
  live_events_.erase(event);
  delete event;
}

void Streams::submit(Stream& stream, NodeKind kind, const std::function<void()>& run,
                     std::uint64_t duration_ns, const void* function) {
  if (stream.capture) {
    GraphNode* node = stream.capture->graph->add(kind, stream.last);
    node->run = run;
    node->function = function;
    stream.last = {node};
    return;
  }
  timeline_.submit(stream.index, duration_ns);
  if (run) run();
}

void Streams::record(Event& event, Stream& stream) {
  event.recorded = true;
  event.capture = stream.capture;
  event.nodes = stream.last;
  if (!stream.capture) timeline_.record(event.handle, stream.index);
}

bool Streams::wait(Stream& stream, Event& event) {
  if (event.capture) {
    if (stream.capture && stream.capture != event.capture) return false;
    // A stream that waits for a captured event joins the capture.
    stream.capture = event.capture;
    for (GraphNode* node : event.nodes) {
      if (std::find(stream.last.begin(), stream.last.end(), node) == stream.last.end()) {
        stream.last.push_back(node);
      }
    }
    return true;
  }
  if (stream.capture) return !event.recorded;
  if (event.recorded) timeline_.wait_event(stream.index, event.handle);
  return true;
}

float Streams::elapsed_ms(const Event& from, const Event& to) const {
  const auto begin = static_cast<double>(timeline_.done_ns(from.handle));
  const auto end = static_cast<double>(timeline_.done_ns(to.handle));
  return static_cast<float>((end - begin) / 1e6);
}

void Streams::begin_capture(Stream& stream, CaptureMode mode, Graph* into,
                            std::vector<GraphNode*> depends_on) {
  auto capture = std::make_shared<Capture>();
  capture->id = next_capture_++;
  capture->mode = mode;
  capture->owns_graph = into == nullptr;
  capture->graph = into == nullptr ? new Graph : into;
  capture->origin = &stream;
  capture->thread = std::this_thread::get_id();
  stream.capture = capture;
  stream.last = std::move(depends_on);
  ++captures_;
}

bool Streams::invalidate_captures(CaptureMode mode) {
  if (captures_ == 0 || mode == CaptureMode::relaxed) return false;
  bool any = false;
  for (const Stream* stream : live_) {
    Capture* const capture = stream->capture.get();
    if (capture == nullptr || capture->mode == CaptureMode::relaxed) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool all = capture->mode == CaptureMode::global && mode == CaptureMode::global;
    if (!own && !all) continue;
    capture->invalid = true;
    any = true;
  }
  return any;
}

Graph* Streams::end_capture(Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  for (const Stream* live : live_) {
    auto* other = const_cast<Stream*>(live);
    if (other->capture != capture) continue;
    other->capture.reset();
    other->last.clear();
  }
  --captures_;
  if (!capture->invalid) return capture->graph;
  if (capture->owns_graph) delete capture->graph;
  return nullptr;
}

}  // namespace gapless::simgpu
