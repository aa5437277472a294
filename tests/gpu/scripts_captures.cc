// Scripts about what may be asked while a stream captures a graph, and whether the capture is still
// good afterwards.
#include "tests/gpu/answers.h"

namespace gapless::testing {
namespace {

using enum DriverCall;

// What there is before a capture begins.
struct Scene {
  explicit Scene(Script& script)
      : capturing(script.stream()),
        beside(script.stream()),
        recorded(script.event()),
        fresh(script.event()),
        handle(script.create()),
        mapped(script.map({handle})),
        reserved(script.reserve(4)) {
    script.gpu.event_record(0, recorded, beside);
    script.gpu.device_synchronize(0);
    script.gpu.mem_alloc(0, script.page, plain);
  }

  StreamHandle capturing;
  StreamHandle beside;
  EventHandle recorded;  // before the capture
  EventHandle fresh;
  MemHandle handle;
  DeviceAddress mapped;
  DeviceAddress reserved;
  DeviceAddress plain = 0;
};

using Make = std::function<DriverStatus()>;

// Each call in a capture of its own.
void in_captures(Script& script, CaptureMode mode) {
  Driver& gpu = script.gpu;
  Scene scene(script);
  const std::uint64_t page = script.page;
  const auto ask = [&](DriverCall call, const std::string& with, const Make& make) {
    if (script.graphs.begin(scene.capturing, mode) != DriverStatus::ok) {
      throw std::runtime_error("no capture can be begun");
    }
    gpu.memset_d32(0, scene.mapped, 3, 4, scene.capturing);
    script.ask(call, with, make);
    std::size_t graph = 0;
    const DriverStatus status = script.graphs.end(scene.capturing, graph);
    script.note(call, with + ": the capture is still good",
                status == DriverStatus::ok ? "yes" : words(status));
    if (status == DriverStatus::ok) script.graphs.destroy(graph);
  };
  MemInfo info;
  ask(mem_info, "", [&] { return gpu.mem_info(0, info); });
  MemHandle made = 0;
  ask(mem_create, "", [&] { return gpu.mem_create(0, page, made); });
  DeviceAddress range = 0;
  ask(address_reserve, "", [&] { return gpu.address_reserve(page, 0, range); });
  ask(mem_map, "", [&] { return gpu.mem_map(scene.reserved, page, scene.handle); });
  ask(mem_set_access, "", [&] { return gpu.mem_set_access(scene.reserved, page, 0); });
  ask(mem_unmap, "", [&] { return gpu.mem_unmap(scene.reserved, page); });
  ask(address_free, "", [&] { return gpu.address_free(range, page); });
  ask(mem_release, "", [&] { return gpu.mem_release(made); });
  DeviceAddress plain = 0;
  ask(mem_alloc, "", [&] { return gpu.mem_alloc(0, page, plain); });
  ask(mem_free, "", [&] { return gpu.mem_free(0, scene.plain); });
  StreamHandle stream = 0;
  ask(stream_create, "", [&] { return gpu.stream_create(0, stream); });
  ask(stream_destroy, "of another stream", [&] { return gpu.stream_destroy(0, stream); });
  EventHandle event = 0;
  ask(event_create, "", [&] { return gpu.event_create(0, event); });
  ask(event_record, "on another stream", [&] { return gpu.event_record(0, event, scene.beside); });
  ask(event_query, "of another stream's", [&] { return gpu.event_query(0, event); });
  ask(event_synchronize, "of another stream's", [&] { return gpu.event_synchronize(0, event); });
  ask(event_destroy, "", [&] { return gpu.event_destroy(0, event); });
  ask(stream_wait_event, "by another stream",
      [&] { return gpu.stream_wait_event(0, scene.beside, scene.recorded); });
  bool capturing = false;
  ask(stream_is_capturing, "",
      [&] { return gpu.stream_is_capturing(0, scene.capturing, capturing); });
  script.note(stream_is_capturing, "it says so", capturing);
  ask(stream_is_capturing, "another stream",
      [&] { return gpu.stream_is_capturing(0, scene.beside, capturing); });
  script.note(stream_is_capturing, "another stream: it does not", !capturing);
  CapturePoint point;
  ask(stream_capture_point, "",
      [&] { return gpu.stream_capture_point(0, scene.capturing, point); });
  script.note(stream_capture_point, "after one node", point.capture != 0 && point.ends.size() == 1);
  std::uint32_t word = 0;
  ask(memset_d32, "on another stream",
      [&] { return gpu.memset_d32(0, scene.mapped + 512, 9, 4, scene.beside); });
  ask(copy_to_host, "on another stream",
      [&] { return gpu.copy_to_host(0, &word, scene.mapped, 4, scene.beside); });
  ask(stream_synchronize, "of another stream",
      [&] { return gpu.stream_synchronize(0, scene.beside); });
  ask(device_synchronize, "", [&] { return gpu.device_synchronize(0); });
  // On the stream that captures.
  ask(event_record, "on the stream that captures",
      [&] { return gpu.event_record(0, scene.fresh, scene.capturing); });
  ask(event_query, "of what a capture recorded", [&] { return gpu.event_query(0, scene.fresh); });
  ask(stream_wait_event, "for an event from before the capture",
      [&] { return gpu.stream_wait_event(0, scene.capturing, scene.recorded); });
  ask(stream_synchronize, "of the stream that captures",
      [&] { return gpu.stream_synchronize(0, scene.capturing); });
  script.ask(device_synchronize, "when all captures have ended",
             [&] { return gpu.device_synchronize(0); });
}

void global_captures(Script& script) { in_captures(script, CaptureMode::global); }
void thread_local_captures(Script& script) { in_captures(script, CaptureMode::thread_local_); }
void relaxed_captures(Script& script) { in_captures(script, CaptureMode::relaxed); }

// Two streams in one capture: what the allocator reads of its nodes.
void nodes(Script& script) {
  Driver& gpu = script.gpu;
  const Scene scene(script);
  script.graphs.begin(scene.capturing, CaptureMode::global);
  CapturePoint point{.capture = 0, .ends = {5}};
  gpu.stream_capture_point(0, scene.capturing, point);
  script.note(stream_capture_point, "nodes at the begin", std::to_string(point.ends.size()));
  const auto work = [&](StreamHandle on) { gpu.memset_d32(0, scene.mapped, 3, 4, on); };
  work(scene.capturing);
  CapturePoint first;
  gpu.stream_capture_point(0, scene.capturing, first);
  script.note(stream_capture_point, "nodes after one", std::to_string(first.ends.size()));
  script.graphs.order(scene.capturing, scene.beside);
  bool capturing = false;
  gpu.stream_is_capturing(0, scene.beside, capturing);
  script.note(stream_is_capturing, "a stream that waited for one that captures", capturing);
  work(scene.beside);
  CapturePoint second;
  gpu.stream_capture_point(0, scene.beside, second);
  script.note(stream_capture_point, "both are in one capture",
              first.capture == second.capture && first.capture != 0);
  std::vector<std::uint64_t> before;
  if (!second.ends.empty() && !first.ends.empty()) {
    script.ask(graph_node_dependencies, "of the second stream's node",
               [&] { return gpu.graph_node_dependencies(0, second.ends.front(), before); });
    script.note(graph_node_dependencies, "it comes after the first stream's",
                before.size() == 1 && before.front() == first.ends.front());
    script.ask(graph_node_dependencies, "of the first node",
               [&] { return gpu.graph_node_dependencies(0, first.ends.front(), before); });
    script.note(graph_node_dependencies, "it comes after none", before.empty());
  }
  script.graphs.order(scene.beside, scene.capturing);
  std::size_t graph = 0;
  script.note(stream_capture_point, "the capture ends well",
              script.graphs.end(scene.capturing, graph) == DriverStatus::ok);
  script.note(stream_is_capturing, "the graph runs",
              script.graphs.launch(graph, scene.capturing) == DriverStatus::ok);
  script.ask(stream_synchronize, "after the graph",
             [&] { return gpu.stream_synchronize(0, scene.capturing); });
}

constexpr NamedScript kCaptureScripts[] = {
    {"global_captures", global_captures},
    {"thread_local_captures", thread_local_captures},
    {"relaxed_captures", relaxed_captures},
    {"nodes", nodes},
};

}  // namespace

std::span<const NamedScript> capture_scripts() { return kCaptureScripts; }

}  // namespace gapless::testing
