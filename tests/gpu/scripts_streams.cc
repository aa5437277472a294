// Scripts about streams and events, in order and out of it.
#include "tests/gpu/answers.h"
#include "tests/gpu/work.h"

namespace gapless::testing {
namespace {

using enum DriverCall;

void events(Script& script) {
  Driver& gpu = script.gpu;
  const StreamHandle one = script.stream();
  const StreamHandle two = script.stream();
  const EventHandle fresh = script.event();
  const EventHandle used = script.event();
  const auto query = [&](const std::string& with, EventHandle event) {
    script.ask(event_query, with, [&] { return gpu.event_query(0, event); });
  };
  query("never recorded", fresh);
  script.ask(event_synchronize, "never recorded", [&] { return gpu.event_synchronize(0, fresh); });
  script.ask(stream_wait_event, "never recorded",
             [&] { return gpu.stream_wait_event(0, one, fresh); });
  script.ask(event_record, "on a stream without work",
             [&] { return gpu.event_record(0, used, one); });
  script.ask(event_synchronize, "after that", [&] { return gpu.event_synchronize(0, used); });
  query("after that", used);
  script.ask(event_record, "on the default stream", [&] { return gpu.event_record(0, used, 0); });
  script.ask(event_record, "again, on another stream",
             [&] { return gpu.event_record(0, used, two); });
  script.ask(stream_wait_event, "on its own stream",
             [&] { return gpu.stream_wait_event(0, two, used); });
  script.ask(stream_wait_event, "on another stream",
             [&] { return gpu.stream_wait_event(0, one, used); });
  script.ask(stream_wait_event, "on the default stream",
             [&] { return gpu.stream_wait_event(0, 0, used); });
  script.ask(stream_synchronize, "", [&] { return gpu.stream_synchronize(0, one); });
  script.ask(stream_synchronize, "of the default stream",
             [&] { return gpu.stream_synchronize(0, 0); });
  script.ask(device_synchronize, "", [&] { return gpu.device_synchronize(0); });
  query("after waiting for the device", used);
  script.ask(event_destroy, "", [&] { return gpu.event_destroy(0, used); });
  bool capturing = true;
  script.ask(stream_is_capturing, "a stream that does not",
             [&] { return gpu.stream_is_capturing(0, one, capturing); });
  script.note(stream_is_capturing, "a stream that does not: it says so", !capturing);
  capturing = true;
  script.ask(stream_is_capturing, "the default stream",
             [&] { return gpu.stream_is_capturing(0, 0, capturing); });
  script.note(stream_is_capturing, "the default stream: it says so", !capturing);
  CapturePoint point{.capture = 5, .ends = {5}};
  script.ask(stream_capture_point, "a stream that does not capture",
             [&] { return gpu.stream_capture_point(0, one, point); });
  script.note(stream_capture_point, "it is nowhere", point == CapturePoint{});
  script.ask(stream_destroy, "", [&] { return gpu.stream_destroy(0, one); });
}

// While work runs that was given before.
void events_of_running_work(Script& script) {
  Driver& gpu = script.gpu;
  const StreamHandle busy = script.stream();
  const StreamHandle idle = script.stream();
  const EventHandle before = script.event();
  const EventHandle after = script.event();
  const EventHandle elsewhere = script.event();
  const std::uint64_t bytes = 256 * script.page;
  const MemHandle handle = script.create(256);
  const DeviceAddress address = script.reserve(256);
  gpu.mem_map(address, bytes, handle);
  gpu.mem_set_access(address, bytes, 0);
  gpu.event_record(0, before, busy);
  gpu.event_synchronize(0, before);
  keep_busy(gpu, busy, address, bytes);
  script.ask(event_record, "behind work", [&] { return gpu.event_record(0, after, busy); });
  script.ask(stream_wait_event, "of another stream, behind work",
             [&] { return gpu.stream_wait_event(0, idle, after); });
  script.ask(event_record, "behind that wait",
             [&] { return gpu.event_record(0, elsewhere, idle); });
  script.ask(event_query, "recorded before the work", [&] { return gpu.event_query(0, before); });
  script.ask(event_synchronize, "behind the wait",
             [&] { return gpu.event_synchronize(0, elsewhere); });
  script.ask(event_query, "behind the work, after the one that waited for it",
             [&] { return gpu.event_query(0, after); });
  keep_busy(gpu, busy, address, bytes);
  gpu.memset_d32(0, address, 9, script.page / 4, busy);
  gpu.event_record(0, after, busy);
  if (script.work_takes_time) {
    script.ask(event_query, "behind work", [&] { return gpu.event_query(0, after); });
  }
  script.ask(event_destroy, "before its work is done", [&] { return gpu.event_destroy(0, after); });
  script.ask(stream_destroy, "with work on it", [&] { return gpu.stream_destroy(0, busy); });
  script.ask(device_synchronize, "after that", [&] { return gpu.device_synchronize(0); });
  script.note(memset_d32, "the destroyed stream's work was done", script.word(address) == 9);
  gpu.mem_unmap(address, bytes);
  gpu.address_free(address, bytes);
  gpu.mem_release(handle);
}

// The script for each wrong handle is one of its own: a driver may not live through it.
void destroying_no_stream(Script& script) {
  script.ask(stream_destroy, "the default stream", [&] { return script.gpu.stream_destroy(0, 0); });
}
void destroying_a_stream_twice(Script& script) {
  const StreamHandle stream = script.stream();
  script.gpu.stream_destroy(0, stream);
  script.ask(stream_destroy, "again", [&] { return script.gpu.stream_destroy(0, stream); });
}
void a_destroyed_stream(Script& script) {
  const StreamHandle stream = script.stream();
  script.gpu.stream_destroy(0, stream);
  script.ask(stream_synchronize, "a destroyed stream",
             [&] { return script.gpu.stream_synchronize(0, stream); });
  const EventHandle event = script.event();
  script.ask(event_record, "on a destroyed stream",
             [&] { return script.gpu.event_record(0, event, stream); });
}
void no_event(Script& script) {
  script.ask(event_query, "no event", [&] { return script.gpu.event_query(0, 0); });
  script.ask(event_record, "no event", [&] { return script.gpu.event_record(0, 0, 0); });
  script.ask(stream_wait_event, "no event", [&] { return script.gpu.stream_wait_event(0, 0, 0); });
  script.ask(event_synchronize, "no event", [&] { return script.gpu.event_synchronize(0, 0); });
  script.ask(event_destroy, "no event", [&] { return script.gpu.event_destroy(0, 0); });
}
void a_destroyed_event(Script& script) {
  const EventHandle event = script.event();
  script.gpu.event_destroy(0, event);
  script.ask(event_query, "a destroyed event", [&] { return script.gpu.event_query(0, event); });
  script.ask(event_destroy, "again", [&] { return script.gpu.event_destroy(0, event); });
}

constexpr NamedScript kStreamScripts[] = {
    {"events", events},
    {"events_of_running_work", events_of_running_work},
    {"destroying_no_stream", destroying_no_stream, true},
    {"destroying_a_stream_twice", destroying_a_stream_twice, true},
    {"a_destroyed_stream", a_destroyed_stream, true},
    {"no_event", no_event, true},
    {"a_destroyed_event", a_destroyed_event, true},
};

}  // namespace

std::span<const NamedScript> stream_scripts() { return kStreamScripts; }

}  // namespace gapless::testing
