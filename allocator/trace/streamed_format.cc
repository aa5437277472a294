#include "allocator/trace/streamed_format.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "allocator/base/error.h"
#include "allocator/base/json_text.h"
#include "allocator/base/read_budget.h"
#include "allocator/trace/segment_ranges.h"
#include "allocator/trace/zstd_frame.h"

namespace gapless {
namespace {

using nlohmann::json;

constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kLongestSite = 1024;
constexpr std::size_t kMostFrames = 1024;  // of a stack: real ones are a few hundred deep

// Reads one file, frame by frame; what it holds and does is on the file's budget.
class StreamReader {
 public:
  StreamReader(std::string_view bytes, const std::string& name)
      : bytes_(bytes), name_(name), budget_(name, bytes.size()) {}

  std::vector<Trace> read() {
    std::size_t at = kStreamedMagic.size();
    while (!ended_ && bytes_.size() - at >= kHeaderBytes) {
      StreamedFrameHeader header;
      std::memcpy(&header.kind, bytes_.data() + at, sizeof(std::uint32_t));
      std::memcpy(&header.trace, bytes_.data() + at + 4, sizeof(std::uint32_t));
      std::memcpy(&header.bytes, bytes_.data() + at + 8, sizeof(std::uint64_t));
      if (header.bytes > bytes_.size() - at - kHeaderBytes) break;  // cut off
      place_ = "frame at byte " + std::to_string(at);
      read_frame(header, bytes_.substr(at + kHeaderBytes, header.bytes));
      at += kHeaderBytes + header.bytes;
    }
    if (traces_.empty()) throw InputError(name_, "byte 8", "the file is cut off before any event");
    if (ended_ && at != bytes_.size())
      throw InputError(name_, place_, "more follows after the end");
    finish(bytes_.size() - at);
    return std::move(traces_);
  }

 private:
  void read_frame(const StreamedFrameHeader& header, std::string_view packed) {
    const std::string raw = unpack_zstd_frame(packed, budget_, place_);
    switch (header.kind) {
      case StreamedFrame::names: {
        const json names = parse_json(raw, budget_, place_);
        read_names(JsonFields(names, name_, place_));
        break;
      }
      case StreamedFrame::events:
        read_events(header.trace, raw);
        break;
      case StreamedFrame::end:
        ended_ = true;
        break;
      default:
        throw InputError(name_, place_, "a frame of an unknown kind");
    }
    budget_.give_back(raw.size());
  }

  void read_names(const JsonFields& fields) {
    if (fields.has("devices")) {
      if (!traces_.empty()) fields.fail("devices", "told a second time");
      for (const json& device : fields.list("devices", kMostDevices)) {
        read_device(JsonFields(device, name_, place_ + ".devices"));
      }
    }
    if (fields.has("streams")) {
      read_of_traces(fields, "streams", [&](Trace& trace, const json& value) {
        if (!value.is_number_unsigned()) fields.fail("streams", "expected whole numbers");
        if (trace.streams.size() >= kMostStreams) fields.fail("streams", "too many");
        budget_.make_room(trace.streams, 1, place_);
        trace.streams.push_back(value.get<std::uint64_t>());
      });
    }
    if (fields.has("pools")) {
      read_of_traces(fields, "pools", [&](Trace& trace, const json& value) {
        if (!value.is_string()) fields.fail("pools", "expected texts");
        if (trace.pools.size() >= kMostPools) fields.fail("pools", "too many");
        add_text(value, trace.pools);
      });
    }
    if (fields.has("frames")) {
      for (const json& frame : fields.list("frames", UINT32_MAX)) {
        if (!frame.is_string()) fields.fail("frames", "expected texts");
        add_text(frame, stacks_->frames);
      }
    }
    if (fields.has("stacks")) read_stacks(fields);
    if (fields.has("sites")) read_sites(fields);
    if (fields.has("lost")) {
      read_of_traces(fields, "lost", [&](Trace& trace, const json& value) {
        if (!value.is_number_unsigned()) fields.fail("lost", "expected whole numbers");
        lost_[static_cast<std::size_t>(&trace - traces_.data())] += value.get<std::uint64_t>();
      });
    }
  }

  void read_device(const JsonFields& fields) {
    budget_.make_room(traces_, 1, place_);
    Trace& trace = traces_.emplace_back();
    trace.name = fields.text("name");
    trace.source = fields.text("source");
    trace.device = static_cast<DeviceIndex>(fields.number("device", kMostDevices - 1));
    trace.initial_events = fields.number("initial_events");
    // What was reserved at the start: addresses and bytes in turn.
    const auto& numbers = fields.list("mapped", UINT32_MAX);
    if (numbers.size() % 2 != 0) fields.fail("mapped", "expected pairs");
    budget_.make_room(trace.segments, numbers.size() / 2, place_);
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      if (!numbers[i].is_number_unsigned() || !numbers[i + 1].is_number_unsigned()) {
        fields.fail("mapped", "expected whole numbers");
      }
      TraceSegment segment;
      segment.address = numbers[i].get<std::uint64_t>();
      segment.bytes = numbers[i + 1].get<std::uint64_t>();
      trace.segments.push_back(segment);
    }
    for (const Trace& other : traces_) {
      if (&other != &trace && other.device == trace.device) {
        fields.fail("device", "a device that was told of before");
      }
    }
    lost_.push_back(0);
  }

  // Pairs: which trace, and what is new there.
  template <class F>
  void read_of_traces(const JsonFields& fields, const char* key, F&& f) {
    for (const json& pair : fields.list(key, UINT32_MAX)) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
          pair[0].get<std::uint64_t>() >= traces_.size()) {
        fields.fail(key, "expected a trace and what is new there");
      }
      f(traces_[pair[0].get<std::uint64_t>()], pair[1]);
    }
  }

  void add_text(const json& value, std::vector<std::string>& list) {
    const auto& text = value.get_ref<const std::string&>();
    budget_.hold(ReadBudget::allocated_text(text.size()), place_);
    budget_.make_room(list, 1, place_);
    list.push_back(text);
  }

  void read_stacks(const JsonFields& fields) {
    const auto& numbers = fields.list("stacks", UINT32_MAX);
    if (numbers.size() % 2 != 0) fields.fail("stacks", "expected pairs");
    budget_.make_room(stacks_->nodes, numbers.size() / 2, place_);
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      if (!numbers[i].is_number_unsigned() || !numbers[i + 1].is_number_unsigned()) {
        fields.fail("stacks", "expected whole numbers");
      }
      const auto parent = numbers[i].get<std::uint64_t>();
      const auto frame = numbers[i + 1].get<std::uint64_t>();
      if (parent >= stacks_->nodes.size()) fields.fail("stacks", "a caller that comes later");
      if (frame >= stacks_->frames.size()) fields.fail("stacks", "a frame that is not listed");
      stacks_->nodes.push_back(
          {static_cast<std::uint32_t>(parent), static_cast<std::uint32_t>(frame)});
    }
  }

  void read_sites(const JsonFields& fields) {
    for (const json& value : fields.list("sites", UINT32_MAX)) {
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= stacks_->nodes.size()) {
        fields.fail("sites", "a stack that is not listed");
      }
      const auto node = value.get<std::uint32_t>();
      std::vector<std::string_view> frames;
      for (std::uint32_t at = node; at != 0 && frames.size() < kMostFrames;
           at = stacks_->nodes[at].parent) {
        frames.emplace_back(stacks_->frames[stacks_->nodes[at].frame]);
      }
      budget_.work(8 * frames.size(), place_);
      std::string text = call_site(frames);
      if (text.size() > kLongestSite) text = text.substr(text.size() - kLongestSite);
      budget_.hold(ReadBudget::allocated_text(text.size()), place_);
      budget_.make_room(sites_, 1, place_);
      budget_.make_room(site_stacks_, 1, place_);
      sites_.push_back(std::move(text));
      site_stacks_.push_back(node);
    }
  }

  void read_events(std::uint32_t which, const std::string& raw) {
    if (which >= traces_.size()) throw InputError(name_, place_, "events of an unknown trace");
    if (raw.size() % sizeof(TraceEvent) != 0) {
      throw InputError(name_, place_, "does not hold whole events");
    }
    Trace& trace = traces_[which];
    const std::size_t count = raw.size() / sizeof(TraceEvent);
    budget_.make_room(trace.events, count, place_);
    const std::size_t before = trace.events.size();
    trace.events.resize(before + count);
    std::memcpy(trace.events.data() + before, raw.data(), raw.size());
    for (std::size_t i = before; i < trace.events.size(); ++i) {
      const TraceEvent& event = trace.events[i];
      if (static_cast<std::uint8_t>(event.kind) >= kEventKinds) {
        throw InputError(name_, place_, "event " + std::to_string(i) + " is of an unknown kind");
      }
      if (event.kind == EventKind::alloc) {
        if (event.block != trace.blocks || trace.blocks == UINT32_MAX) {
          throw InputError(name_, place_,
                           "event " + std::to_string(i) + " allocates a block out of order");
        }
        ++trace.blocks;
      }
    }
  }

  // What follows from the whole.
  void finish(std::size_t left_over) {
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      Trace& trace = traces_[i];
      if (trace.initial_events > trace.events.size()) {
        // Cut off before all that was live at the start was written.
        trace.initial_events = trace.events.size();
      }
      trace.sites = sites_;
      budget_.hold(sites_.size() * sizeof(std::string), name_);
      if (sites_.size() > 1) {
        trace.stacks = stacks_;
        trace.site_stacks = site_stacks_;
      }
      // Where events were lost, so may be what was reserved.
      if (lost_[i] == 0) find_segments(trace);
      if (lost_[i] != 0) trace.segments.clear();
      if (!ended_) {
        trace.warnings.push_back(left_over == 0
                                     ? "the program ended before the recording did"
                                     : "the program ended within a frame, which is left out");
      }
      if (lost_[i] != 0) {
        trace.warnings.push_back(std::to_string(lost_[i]) +
                                 " events were lost: sizes may be wrong after them");
      }
      budget_.hold(trace.blocks * sizeof(std::uint64_t), place_);
      check_trace(trace, name_ + ": gpu " + std::to_string(trace.device));
      budget_.give_back(trace.blocks * sizeof(std::uint64_t));
    }
  }

  // What was reserved at the start is told of, and all that came and went since.
  void find_segments(Trace& trace) {
    SegmentRanges ranges;
    std::uint64_t reserved = 0;
    std::size_t most_ranges = 0;
    const auto apply = [&](const TraceEvent& event) {
      const int sign = reserved_sign(event.kind);
      if (sign == 0) return;
      budget_.work(16, place_);
      if (event.bytes > kMostTraceBytes || event.address > UINT64_MAX - event.bytes ||
          (sign > 0 ? event.bytes > kMostTraceBytes - reserved : event.bytes > reserved)) {
        throw InputError(name_, "gpu " + std::to_string(trace.device),
                         "more memory comes or goes than there can be");
      }
      ranges.apply(event);
      if (ranges.size() > most_ranges) {
        budget_.hold((ranges.size() - most_ranges) * kRangeBytes, place_);
        most_ranges = ranges.size();
      }
      reserved = sign > 0 ? reserved + event.bytes : reserved - event.bytes;
      trace.recorded_peak_reserved_bytes = std::max(trace.recorded_peak_reserved_bytes, reserved);
    };
    for (const TraceSegment& segment : trace.segments) {
      TraceEvent event;
      event.kind = EventKind::segment_map;
      event.address = segment.address;
      event.bytes = segment.bytes;
      apply(event);
    }
    for (const TraceEvent& event : trace.events) apply(event);
    trace.segments = ranges.joined();
    trace.has_segments = true;
    budget_.give_back(most_ranges * kRangeBytes);
    budget_.hold(trace.segments.capacity() * sizeof(TraceSegment), place_);
  }

  // A segment in a map.
  static constexpr std::uint64_t kRangeBytes = sizeof(TraceSegment) + 64;

  std::string_view bytes_;
  const std::string& name_;
  ReadBudget budget_;
  std::string place_ = "byte 8";
  bool ended_ = false;
  std::vector<Trace> traces_;
  std::vector<std::uint64_t> lost_;  // events, by trace
  std::shared_ptr<CallStacks> stacks_ = std::make_shared<CallStacks>();
  std::vector<std::string> sites_ = {""};
  std::vector<std::uint32_t> site_stacks_ = {0};
};

}  // namespace

bool looks_like_streamed(std::string_view bytes) { return bytes.starts_with(kStreamedMagic); }

std::vector<Trace> read_streamed(std::string_view bytes, const std::string& name) {
  if (!looks_like_streamed(bytes)) throw InputError(name, "byte 0", "not a gapless recording");
  return StreamReader(bytes, name).read();
}

}  // namespace gapless
