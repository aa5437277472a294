#include "allocator/trace/compact_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

#include "allocator/base/error.h"
#include "allocator/base/json_text.h"
#include "allocator/base/parallel.h"
#include "allocator/base/read_budget.h"
#include "allocator/trace/zstd_frame.h"

namespace gapless {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic{"GAPLESS\x01", 8};
constexpr std::string_view kEndMagic{"GAPLEND\x01", 8};
constexpr std::size_t kFooterBytes = 24;  // index offset, index bytes, end magic
constexpr std::size_t kFrameEvents = 65536;
constexpr int kLevel = 9;

static_assert(std::endian::native == std::endian::little, "records are written as they lie");

void put_u64(std::string& out, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint64_t get_u64(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

json segments_of(const Trace& trace) {
  json list = json::array();
  for (const TraceSegment& segment : trace.segments) {
    list.push_back({segment.address, segment.bytes, segment.stream, segment.pool,
                    segment.expandable ? 1 : 0, segment.type});
  }
  return list;
}

// All traces of a file have one tree of stacks, or none.
const CallStacks* stacks_of(const std::vector<Trace>& traces) {
  for (const Trace& trace : traces) {
    if (trace.stacks != nullptr) return trace.stacks.get();
  }
  return nullptr;
}

json header_of(const std::vector<Trace>& traces) {
  json devices = json::array();
  const CallStacks* const stacks = stacks_of(traces);
  for (const Trace& trace : traces) {
    devices.push_back({{"name", trace.name},
                       {"source", trace.source},
                       {"device", trace.device},
                       {"events", trace.events.size()},
                       {"initial_events", trace.initial_events},
                       {"blocks", trace.blocks},
                       {"streams", trace.streams},
                       {"pools", trace.pools},
                       {"sites", trace.sites},
                       {"recorded_peak_reserved_bytes", trace.recorded_peak_reserved_bytes},
                       {"starts_empty", trace.starts_empty},
                       {"warnings", trace.warnings}});
    if (trace.has_segments) devices.back()["segments"] = segments_of(trace);
    if (stacks != nullptr && trace.stacks.get() == stacks) {
      devices.back()["site_stacks"] = trace.site_stacks;
    }
  }
  json header = {{"format", 1}, {"devices", devices}};
  if (stacks != nullptr) {
    json nodes = json::array();  // parent and frame in turn
    for (const CallStacks::Node& node : stacks->nodes) {
      nodes.push_back(node.parent);
      nodes.push_back(node.frame);
    }
    header["frames"] = stacks->frames;
    header["stacks"] = nodes;
  }
  return header;
}

// Some events of one trace, which are compressed by themselves.
struct WrittenFrame {
  std::size_t trace = 0;
  std::size_t first = 0;
  std::size_t count = 0;
  std::string packed;
};

std::vector<WrittenFrame> frames_of(const std::vector<Trace>& traces) {
  std::vector<WrittenFrame> frames;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const std::size_t events = traces[i].events.size();
    for (std::size_t first = 0; first < events; first += kFrameEvents) {
      frames.push_back({i, first, std::min(kFrameEvents, events - first), {}});
    }
  }
  return frames;
}

void pack(const std::vector<Trace>& traces, std::vector<WrittenFrame>& frames) {
  constexpr std::size_t kMostThreads = 8;  // each takes some megabytes
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  in_parallel(frames.size(), std::min(cores, kMostThreads), [&](std::size_t i) {
    WrittenFrame& frame = frames[i];
    const TraceEvent* const events = traces[frame.trace].events.data() + frame.first;
    frame.packed = zstd_frame(
        {reinterpret_cast<const char*>(events), frame.count * sizeof(TraceEvent)}, kLevel);
  });
}

// Reads one file, part by part; what it holds and does is on the file's budget.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& name)
      : bytes_(bytes), name_(name), budget_(name, bytes.size()) {}

  std::vector<Trace> read() {
    if (!looks_like_compact(bytes_)) throw InputError(name_, "byte 0", "not a gapless trace");
    if (bytes_.size() < kMagic.size() + 8 + kFooterBytes || !bytes_.ends_with(kEndMagic)) {
      throw InputError(name_, "end", "the file is cut off");
    }
    const std::uint64_t header_bytes = get_u64(bytes_.substr(kMagic.size()));
    read_header(read_json(part(kMagic.size() + 8, header_bytes, "header"), "header"));
    const std::string_view footer = bytes_.substr(body_bytes());
    read_frames(read_json(part(get_u64(footer), get_u64(footer.substr(8)), "footer"), "index"));
    for (std::size_t i = 0; i < traces_.size(); ++i) check(i);
    return std::move(traces_);
  }

 private:
  [[nodiscard]] std::uint64_t body_bytes() const { return bytes_.size() - kFooterBytes; }

  std::string_view part(std::uint64_t offset, std::uint64_t length, const std::string& place) {
    if (offset > body_bytes() || length > body_bytes() - offset) {
      throw InputError(name_, place, "points outside of the file");
    }
    return bytes_.substr(offset, length);
  }

  json read_json(std::string_view packed, const std::string& place) {
    const std::string text = unpack_zstd_frame(packed, budget_, place);
    json value = parse_json(text, budget_, place);
    budget_.give_back(text.size());
    return value;
  }

  void read_header(const json& header) {
    const JsonFields fields(header, name_, "header");
    if (const std::uint64_t format = fields.number("format"); format != 1) {
      fields.fail("format", std::to_string(format) + "; this version reads format 1");
    }
    if (fields.has("stacks")) read_stacks(fields);
    const auto& devices = fields.list("devices", kMostDevices);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      read_device(JsonFields(devices[i], name_, "header.devices[" + std::to_string(i) + "]"));
    }
  }

  void read_stacks(const JsonFields& fields) {
    auto stacks = std::make_shared<CallStacks>();
    read_list(fields, "frames", UINT32_MAX, stacks->frames);
    const auto& numbers = fields.list("stacks", UINT32_MAX);
    if (numbers.size() < 2 || numbers.size() % 2 != 0) fields.fail("stacks", "expected pairs");
    stacks->nodes.clear();
    budget_.make_room(stacks->nodes, numbers.size() / 2, "stacks");
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      const std::uint64_t node = i / 2;
      if (!numbers[i].is_number_unsigned() || !numbers[i + 1].is_number_unsigned()) {
        fields.fail("stacks", "expected whole numbers");
      }
      const auto parent = numbers[i].get<std::uint64_t>();
      const auto frame = numbers[i + 1].get<std::uint64_t>();
      if (node != 0 && parent >= node) fields.fail("stacks", "a caller that comes later");
      if (frame >= stacks->frames.size()) fields.fail("stacks", "a frame that is not listed");
      stacks->nodes.push_back(
          {static_cast<std::uint32_t>(parent), static_cast<std::uint32_t>(frame)});
    }
    if (stacks->nodes[0] != CallStacks::Node{}) fields.fail("stacks", "the first is no stack");
    stacks_ = std::move(stacks);
  }

  void read_segments(const JsonFields& fields, Trace& trace) {
    trace.has_segments = true;
    const auto& list = fields.list("segments", UINT32_MAX);
    budget_.make_room(trace.segments, list.size(), "segments");
    const auto number = [&](const json& value, std::uint64_t most) {
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
        fields.fail("segments", "a number that is out of range");
      }
      return value.get<std::uint64_t>();
    };
    std::uint64_t total = 0;
    for (const json& entry : list) {
      constexpr std::size_t kFields = 6;
      if (!entry.is_array() || entry.size() != kFields || !entry[5].is_string()) {
        fields.fail("segments", "expected lists of six");
      }
      TraceSegment segment;
      segment.address = number(entry[0], UINT64_MAX);
      segment.bytes = number(entry[1], kMostTraceBytes);
      segment.stream = static_cast<std::uint16_t>(number(entry[2], UINT16_MAX));
      segment.pool = static_cast<std::uint8_t>(number(entry[3], UINT8_MAX));
      segment.expandable = number(entry[4], 1) != 0;
      const auto& type = entry[5].get_ref<const std::string&>();
      budget_.hold(ReadBudget::allocated_text(type.size()), "segments");
      segment.type = type;
      total += segment.bytes;
      if (total > kMostTraceBytes) fields.fail("segments", "more than 1 PiB in all");
      trace.segments.push_back(std::move(segment));
    }
  }

  void read_device(const JsonFields& fields) {
    Trace& trace = traces_.emplace_back();
    trace.name = fields.text("name");
    trace.source = fields.text("source");
    trace.device = static_cast<DeviceIndex>(fields.number("device", kMostDevices - 1));
    const std::uint64_t events = fields.number("events");
    trace.initial_events = fields.number("initial_events", events);
    trace.blocks = static_cast<std::uint32_t>(
        fields.number("blocks", std::min<std::uint64_t>(events, UINT32_MAX)));
    read_list(fields, "streams", kMostStreams, trace.streams);
    read_list(fields, "pools", kMostPools, trace.pools);
    read_list(fields, "sites", UINT32_MAX, trace.sites);
    trace.recorded_peak_reserved_bytes =
        fields.number("recorded_peak_reserved_bytes", kMostTraceBytes);
    trace.starts_empty = fields.flag("starts_empty");
    read_list(fields, "warnings", UINT32_MAX, trace.warnings);
    if (fields.has("segments")) read_segments(fields, trace);
    if (fields.has("site_stacks")) {
      if (stacks_ == nullptr) fields.fail("site_stacks", "the header lists no stacks");
      trace.stacks = stacks_;
      read_list(fields, "site_stacks", UINT32_MAX, trace.site_stacks);
      if (trace.site_stacks.size() != trace.sites.size()) {
        fields.fail("site_stacks", "not as many as there are call sites");
      }
      for (const std::uint32_t node : trace.site_stacks) {
        if (node >= stacks_->nodes.size()) fields.fail("site_stacks", "a stack that is not listed");
      }
    }
    budget_.make_room(trace.events, events, fields.place_of("events"));
    events_expected_.push_back(events);
  }

  template <class Value>
  void read_list(const JsonFields& fields, const char* key, std::uint64_t most,
                 std::vector<Value>& values) {
    const auto& list = fields.list(key, most);
    values.clear();
    budget_.make_room(values, list.size(), fields.place_of(key));
    for (const json& value : list) {
      if constexpr (std::is_same_v<Value, std::string>) {
        if (!value.is_string()) fields.fail(key, "expected texts");
        const auto& text = value.get_ref<const std::string&>();
        budget_.hold(ReadBudget::allocated_text(text.size()), [&] { return fields.place_of(key); });
        values.push_back(text);
      } else {
        if (!value.is_number_unsigned() ||
            value.get<std::uint64_t>() > std::numeric_limits<Value>::max()) {
          fields.fail(key, "expected whole numbers");
        }
        values.push_back(value.get<Value>());
      }
    }
  }

  void read_frames(const json& index) {
    const JsonFields fields(index, name_, "index");
    const auto& frames = fields.list("frames", UINT64_MAX);
    for (std::size_t i = 0; i < frames.size(); ++i) {
      read_frame(JsonFields(frames[i], name_, "index.frames[" + std::to_string(i) + "]"));
    }
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      if (traces_[i].events.size() != events_expected_[i]) {
        throw InputError(name_, "index", "events are missing");
      }
    }
  }

  void read_frame(const JsonFields& fields) {
    const std::uint64_t which = fields.number("trace");
    if (which >= traces_.size()) fields.fail("trace", "a frame of an unknown trace");
    std::vector<TraceEvent>& events = traces_[which].events;
    if (fields.number("first") != events.size()) fields.fail("first", "frames out of order");
    const std::uint64_t count = fields.number("events", kFrameEvents);
    if (count > events_expected_[which] - events.size()) {
      fields.fail("events", "more than the header says");
    }
    const std::uint64_t offset = fields.number("offset");
    const std::string place = "frame at byte " + std::to_string(offset);
    const std::string raw = unpack_zstd_frame(
        part(offset, fields.number("bytes"), fields.place_of("bytes")), budget_, place);
    if (raw.size() != count * sizeof(TraceEvent)) {
      throw InputError(
          name_, place,
          "does not hold the " + std::to_string(count) + " events that the index says");
    }
    const std::size_t before = events.size();
    events.resize(before + count);  // there is room for all that the header says
    std::memcpy(events.data() + before, raw.data(), raw.size());
    budget_.give_back(raw.size());
    for (std::size_t i = before; i < events.size(); ++i) {
      if (static_cast<std::uint8_t>(events[i].kind) >= kEventKinds) {
        throw InputError(name_, place, "event " + std::to_string(i) + " is of an unknown kind");
      }
    }
  }

  void check(std::size_t which) {
    const Trace& trace = traces_[which];
    const std::string place = traces_.size() == 1 ? "" : "devices[" + std::to_string(which) + "]";
    budget_.hold(trace.blocks * sizeof(std::uint64_t), place);
    check_trace(trace, place.empty() ? name_ : name_ + ": " + place);
    budget_.give_back(trace.blocks * sizeof(std::uint64_t));
  }

  std::string_view bytes_;
  const std::string& name_;
  ReadBudget budget_;
  std::vector<Trace> traces_;
  std::shared_ptr<const CallStacks> stacks_;
  std::vector<std::uint64_t> events_expected_;
};

}  // namespace

std::string write_compact(const std::vector<Trace>& traces) {
  std::string out(kMagic);
  const std::string header = zstd_frame(json_text(header_of(traces)), kLevel);
  put_u64(out, header.size());
  out += header;
  std::vector<WrittenFrame> written = frames_of(traces);
  pack(traces, written);
  json frames = json::array();
  for (WrittenFrame& frame : written) {
    frames.push_back({{"offset", out.size()},
                      {"bytes", frame.packed.size()},
                      {"trace", frame.trace},
                      {"first", frame.first},
                      {"events", frame.count}});
    out += frame.packed;
    frame.packed = {};
  }
  const std::string index = zstd_frame(json_text(json{{"frames", frames}}), kLevel);
  const std::uint64_t index_offset = out.size();
  out += index;
  put_u64(out, index_offset);
  put_u64(out, index.size());
  out += kEndMagic;
  return out;
}

bool looks_like_compact(std::string_view bytes) { return bytes.starts_with(kMagic); }

std::vector<Trace> read_compact(std::string_view bytes, const std::string& name) {
  return Reader(bytes, name).read();
}

}  // namespace gapless
