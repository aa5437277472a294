// Streams and events of a process, their time, and their capture into graphs.
//
//   handle 0, 1   the legacy default stream of the current device; 2: the per-thread one
//   else          a Stream of ours
//
// Work takes no time unless it says so (torch.cuda._sleep does). Time is the host's own: what is
// busy now is done when so much time has passed, or at once for a host that waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "simgpu/process/graph.h"
#include "simgpu/timeline.h"

namespace gapless::simgpu {

/// cudaStreamCaptureMode.
enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };

struct Capture {
  unsigned long long id = 0;
  CaptureMode mode = CaptureMode::global;
  Graph* graph = nullptr;
  bool owns_graph = true;
  bool invalid = false;
  std::thread::id thread;  // which began it
  struct Stream* origin = nullptr;
};

struct Stream {
  DeviceIndex device = 0;
  std::uint32_t index = 0;  // in the timeline
  StreamHandle handle = 0;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> last;  // what its next node depends on
};

struct Event {
  DeviceIndex device = 0;
  EventHandle handle = 0;
  unsigned flags = 0;
  bool recorded = false;
  std::shared_ptr<Capture> capture;  // recorded during one
  std::vector<GraphNode*> nodes;
};

class Streams {
 public:
  explicit Streams(int devices);

  Timeline& time() { return timeline_; }
  /// Lets the clock catch up with the host's.
  void tick();

  Stream* create(DeviceIndex device, unsigned flags, int priority);
  void destroy(Stream* stream);
  [[nodiscard]] bool known(const Stream* stream) const { return live_.contains(stream); }
  /// The stream behind a handle; nullptr for one that is none (or no more).
  Stream* find(void* handle, DeviceIndex current);

  Event* create_event(DeviceIndex device, unsigned flags);
  void destroy_event(Event* event);
  [[nodiscard]] bool known(const Event* event) const { return live_events_.contains(event); }

  /// Work on a stream: runs now, or becomes a node of the graph being captured.
  void submit(Stream& stream, NodeKind kind, const std::function<void()>& run,
              std::uint64_t duration_ns = 0, const void* function = nullptr);
  void record(Event& event, Stream& stream);
  /// False where the stream captures and the event was recorded outside of that capture.
  bool wait(Stream& stream, Event& event);
  /// Milliseconds between two events.
  float elapsed_ms(const Event& from, const Event& to) const;

  void begin_capture(Stream& stream, CaptureMode mode, Graph* into,
                     std::vector<GraphNode*> depends_on);
  /// The graph; nullptr where the capture had become invalid.
  Graph* end_capture(Stream& stream);
  [[nodiscard]] bool any_capture() const { return captures_ != 0; }
  /// A call that captures do not allow is made by this thread, which has asked for that mode: they
  /// become invalid. False where none minds.
  bool invalidate_captures(CaptureMode mode);

 private:
  Timeline timeline_;
  std::vector<std::unique_ptr<Stream>> defaults_;  // by device
  std::set<const Stream*> live_;
  std::set<const Event*> live_events_;
  unsigned long long next_id_ = 1;
  unsigned long long next_capture_ = 1;
  int captures_ = 0;
  std::uint64_t host_ns_ = 0;
};

}  // namespace gapless::simgpu
