#include "allocator/trace/perfetto.h"

#include <algorithm>

#include "allocator/base/bytes.h"
#include "allocator/base/json_writer.h"
#include "allocator/trace/event_clock.h"
#include "allocator/trace/minimalloc.h"
#include "allocator/trace/segment_ranges.h"

namespace gapless {
namespace {

constexpr std::uint64_t kDriverTrack = 1;

class DeviceWriter {
 public:
  DeviceWriter(const Trace& trace, JsonWriter& out) : trace_(trace), out_(out), clock_(trace) {}

  void write() {
    name_process();
    sites_.reserve(trace_.sites.size());
    for (const std::string& site : trace_.sites) {
      sites_.push_back(JsonWriter::json_string(site.empty() ? "block" : site));
    }
    bytes_.resize(trace_.blocks);
    site_.resize(trace_.blocks);
    live_.resize(trace_.blocks);
    reserved_ = reserved_at_start(trace_).value_or(0);
    has_reserved_ = trace_.has_segments;
    for (const TraceEvent& event : trace_.events) {
      if (event.kind >= EventKind::segment_alloc && event.kind <= EventKind::segment_unmap) {
        has_reserved_ = true;
      }
    }
    std::uint64_t now = 0;
    for (std::uint64_t i = 0; i < trace_.events.size(); ++i) {
      now = clock_.at(i, trace_.events[i]);
      add(trace_.events[i], now);
    }
    for (std::uint32_t block = 0; block < trace_.blocks; ++block) {
      if (live_[block]) end_slice(block, now, true);
    }
  }

 private:
  // The fields that every event begins with.
  JsonWriter& event(const char* phase, std::uint64_t time) {
    out_.line().begin('{').key("ph").word(phase);
    out_.key("pid").value(static_cast<std::uint64_t>(trace_.device)).key("ts").value(time);
    return out_;
  }

  void name_process() {
    event("M", 0).key("name").word("process_name").key("args").begin('{').key("name");
    out_.word("gpu " + std::to_string(trace_.device)).end('}').end('}');
    event("M", 0).key("tid").value(kDriverTrack).key("name").word("thread_name").key("args");
    out_.begin('{').key("name").word("driver").end('}').end('}');
  }

  void add(const TraceEvent& event, std::uint64_t now) {
    switch (event.kind) {
      case EventKind::alloc:
        bytes_[event.block] = event.bytes;
        site_[event.block] = event.site;
        live_[event.block] = true;
        requested_ += event.bytes;
        allocated_ += align_up(event.bytes, kBlockGrain);
        begin_slice(event, now);
        count(now);
        break;
      case EventKind::free:
        if (!live_[event.block]) break;
        live_[event.block] = false;
        requested_ -= bytes_[event.block];
        allocated_ -= align_up(bytes_[event.block], kBlockGrain);
        end_slice(event.block, now, false);
        count(now);
        break;
      case EventKind::free_requested:
        async("n", event.block, now).key("args").begin('{').key("step").word("free requested");
        out_.end('}').end('}');
        break;
      case EventKind::segment_alloc:
      case EventKind::segment_map:
        reserved_ += event.bytes;
        instant(event, now);
        count(now);
        break;
      case EventKind::segment_free:
      case EventKind::segment_unmap:
        reserved_ -= std::min(reserved_, event.bytes);
        instant(event, now);
        count(now);
        break;
      case EventKind::oom:
      case EventKind::marker:
        instant(event, now);
        break;
    }
  }

  void count(std::uint64_t now) {
    event("C", now).key("name").word("memory").key("args").begin('{');
    out_.key("requested").value(requested_).key("allocated").value(allocated_);
    if (has_reserved_) out_.key("reserved").value(reserved_);
    out_.end('}').end('}');
  }

  void instant(const TraceEvent& what, std::uint64_t now) {
    event("i", now).key("tid").value(kDriverTrack).key("s").word("t");
    out_.key("name").word(to_string(what.kind)).key("args").begin('{');
    out_.key("bytes").value(what.bytes).key("stream").value(trace_.streams[what.stream]);
    if (what.kind == EventKind::oom) {
      out_.key("device_free_bytes").value(what.address);
    } else {
      out_.key("address").word(hex(what.address));
    }
    if (what.site != 0) out_.key("site").encoded(sites_[what.site]);
    out_.end('}').end('}');
  }

  JsonWriter& async(const char* phase, std::uint32_t block, std::uint64_t now) {
    event(phase, now).key("cat").word("block").key("id").value(block);
    return out_.key("name").encoded(sites_[site_[block]]);
  }
  void begin_slice(const TraceEvent& what, std::uint64_t now) {
    async("b", what.block, now).key("args").begin('{').key("bytes").value(what.bytes);
    out_.key("stream").value(trace_.streams[what.stream]).key("address").word(hex(what.address));
    if (what.pool != 0) out_.key("pool").text(trace_.pools[what.pool]);
    if (const std::vector<std::string_view> frames = trace_.frames_of(what.site);
        frames.size() > 1) {
      out_.key("called_from").text(frames[1]);
    }
    out_.end('}').end('}');
  }
  void end_slice(std::uint32_t block, std::uint64_t now, bool lives_on) {
    async("e", block, now);
    if (lives_on) out_.key("args").begin('{').key("lives_on").flag(true).end('}');
    out_.end('}');
  }

  static std::string hex(std::uint64_t value) {
    std::string text = "0x";
    int shift = 60;
    while (shift > 0 && (value >> shift) == 0) shift -= 4;
    for (; shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
    return text;
  }

  const Trace& trace_;
  JsonWriter& out_;
  EventClock clock_;
  std::vector<std::string> sites_;    // as JSON
  std::vector<std::uint64_t> bytes_;  // by block
  std::vector<std::uint32_t> site_;
  std::vector<bool> live_;
  std::uint64_t requested_ = 0;
  std::uint64_t allocated_ = 0;
  std::uint64_t reserved_ = 0;
  bool has_reserved_ = false;
};

}  // namespace

void write_perfetto(const std::vector<Trace>& traces, const WriteBytes& write) {
  JsonWriter out(write);
  out.begin('{').key("displayTimeUnit").word("ms").key("metadata").begin('{');
  out.key("recorded_by").word("gapless convert").key("traces").begin('[');
  for (const Trace& trace : traces) {
    out.begin('{').key("name").text(trace.name).key("source").text(trace.source);
    out.key("gpu").value(static_cast<std::uint64_t>(trace.device)).key("times");
    out.word(came_from_minimalloc(trace) ? "the recording's own"
             : EventClock(trace).known() ? "microseconds"
                                         : "numbers of events: the trace has no times");
    out.end('}');
  }
  out.end(']').end('}').key("traceEvents").begin('[');
  for (const Trace& trace : traces) DeviceWriter(trace, out).write();
  out.end(']').end('}');
}

}  // namespace gapless
