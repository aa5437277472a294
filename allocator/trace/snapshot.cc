#include "allocator/trace/snapshot.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>

#include "allocator/base/error.h"
#include "allocator/trace/pickle.h"

namespace gapless {
namespace {

// Reads fields with a path for errors, and counts what it visits: a pickle may refer to one value
// many times, and must not make its reader larger than its file.
class Schema {
 public:
  explicit Schema(const PickleDocument& document)
      : document_(document), budget_(document.opcodes() + 16) {}

  [[noreturn]] void fail(const std::string& place, const std::string& cause) const {
    throw InputError(document_.name(), place, cause);
  }

  void visit(const std::string& place) {
    if (budget_-- == 0) fail(place, "the same value is used over and over; not a memory snapshot");
  }

  const PickleValue& dict(const PickleValue& value, const std::string& place) const {
    if (!value.is_dict()) fail(place, std::string("expected a dict, found ") + value.kind_name());
    return value;
  }
  const std::vector<PickleValue>& list(const PickleValue& value, const std::string& place) const {
    if (!value.is_list()) fail(place, std::string("expected a list, found ") + value.kind_name());
    return value.items();
  }
  const PickleValue& need(const PickleValue& dict, std::string_view key,
                          const std::string& place) const {
    const PickleValue* value = dict.find(key);
    if (value == nullptr) fail(place, "\"" + std::string(key) + "\" is missing");
    return *value;
  }
  std::optional<std::uint64_t> number(const PickleValue& dict, std::string_view key,
                                      const std::string& place) const {
    const PickleValue* value = dict.find(key);
    if (value == nullptr || value->is_none()) return {};
    if (!value->is_integer()) {
      fail(place + "." + std::string(key),
           std::string("expected an int, found ") + value->kind_name());
    }
    return static_cast<std::uint64_t>(value->integer());
  }
  std::uint64_t need_number(const PickleValue& dict, std::string_view key,
                            const std::string& place) const {
    const auto value = number(dict, key, place);
    if (!value) fail(place, "\"" + std::string(key) + "\" is missing");
    return *value;
  }
  static std::string_view text(const PickleValue& dict, std::string_view key) {
    const PickleValue* value = dict.find(key);
    return value != nullptr && value->is_text() ? value->text() : std::string_view();
  }

  // "(0, 1)" of a pair of ints; empty where there is none.
  static std::string pool(const PickleValue& dict) {
    for (const std::string_view key : {"segment_pool_id", "pool_id"}) {
      const PickleValue* value = dict.find(key);
      if (value == nullptr || !value->is_list() || value->items().size() != 2) continue;
      const auto& pair = value->items();
      if (!pair[0].is_integer() || !pair[1].is_integer()) continue;
      return "(" + std::to_string(pair[0].integer()) + ", " + std::to_string(pair[1].integer()) +
             ")";
    }
    return {};
  }

  // "train.py:120 forward": the innermost frame of a Python file, else the innermost frame.
  static std::string site(const PickleValue& dict) {
    const PickleValue* frames = dict.find("frames");
    if (frames == nullptr || !frames->is_list()) return {};
    const PickleValue* chosen = nullptr;
    constexpr std::size_t kLook = 64;
    const auto& all = frames->items();
    for (std::size_t i = 0; i < std::min(all.size(), kLook); ++i) {
      if (!all[i].is_dict()) continue;
      if (chosen == nullptr) chosen = &all[i];
      if (text(all[i], "filename").ends_with(".py")) {
        chosen = &all[i];
        break;
      }
    }
    if (chosen == nullptr) return {};
    std::string where(text(*chosen, "filename"));
    if (const PickleValue* line = chosen->find("line"); line != nullptr && line->is_integer()) {
      where += ":" + std::to_string(line->integer());
    }
    const std::string_view name = text(*chosen, "name");
    if (!name.empty()) where += " " + std::string(name);
    return where;
  }

 private:
  const PickleDocument& document_;
  std::uint64_t budget_;
};

std::vector<SnapshotSegment> read_segments(Schema& schema, const PickleValue& value) {
  std::vector<SnapshotSegment> segments;
  const auto& list = schema.list(value, "segments");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = "segments[" + std::to_string(i) + "]";
    schema.visit(place);
    const PickleValue& source = schema.dict(list[i], place);
    SnapshotSegment segment;
    segment.device = static_cast<DeviceIndex>(schema.number(source, "device", place).value_or(0));
    segment.address = schema.need_number(source, "address", place);
    segment.bytes = schema.need_number(source, "total_size", place);
    segment.stream = schema.number(source, "stream", place).value_or(0);
    segment.type = Schema::text(source, "segment_type");
    segment.pool = Schema::pool(source);
    if (const PickleValue* expandable = source.find("is_expandable")) {
      segment.expandable = expandable->is_integer() && expandable->integer() != 0;
    }
    const auto& blocks = schema.list(schema.need(source, "blocks", place), place + ".blocks");
    std::uint64_t address = segment.address;
    for (std::size_t j = 0; j < blocks.size(); ++j) {
      const std::string at = place + ".blocks[" + std::to_string(j) + "]";
      schema.visit(at);
      const PickleValue& record = schema.dict(blocks[j], at);
      SnapshotBlock block;
      block.bytes = schema.need_number(record, "size", at);
      block.address = schema.number(record, "address", at).value_or(address);
      block.requested_bytes = schema.number(record, "requested_size", at).value_or(block.bytes);
      const std::string_view state = Schema::text(record, "state");
      block.allocated = state == "active_allocated";
      block.pending_free = state == "active_pending_free" || state == "active_awaiting_free";
      if (!block.allocated && !block.pending_free && state != "inactive") {
        schema.fail(at, "unknown state \"" + std::string(state) + "\"");
      }
      if (block.bytes > segment.bytes - (address - segment.address)) {
        schema.fail(at, "the blocks are larger than their segment");
      }
      if (block.allocated || block.pending_free) block.site = Schema::site(record);
      address += block.bytes;
      segment.blocks.push_back(std::move(block));
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

// What a trace event of PyTorch is to us; nothing for what does not concern memory.
std::optional<EventKind> kind_of(std::string_view action) {
  if (action == "alloc") return EventKind::alloc;
  if (action == "free_requested") return EventKind::free_requested;
  if (action == "free_completed" || action == "free") return EventKind::free;
  if (action == "segment_alloc") return EventKind::segment_alloc;
  if (action == "segment_free") return EventKind::segment_free;
  if (action == "segment_map") return EventKind::segment_map;
  if (action == "segment_unmap") return EventKind::segment_unmap;
  if (action == "oom") return EventKind::oom;
  if (action == "snapshot") return EventKind::marker;
  return {};
}

// Gives a small number to each of a few values.
template <class Value>
class Interner {
 public:
  Interner(std::vector<Value>& values, std::size_t most) : values_(values), most_(most) {
    for (std::size_t i = 0; i < values.size(); ++i) numbers_[values[i]] = i;
  }
  std::optional<std::size_t> operator()(const Value& value) {
    const auto [found, added] = numbers_.try_emplace(value, values_.size());
    if (added) {
      if (values_.size() >= most_) return {};
      values_.push_back(value);
    }
    return found->second;
  }

 private:
  std::vector<Value>& values_;
  std::size_t most_;
  std::unordered_map<Value, std::size_t> numbers_;
};

// Builds the trace of one device: numbers the blocks, finds those that were live before.
class TraceBuilder {
 public:
  TraceBuilder(Schema& schema, const Snapshot& snapshot, DeviceIndex device)
      : schema_(schema),
        snapshot_(snapshot),
        streams_(trace_.streams, UINT16_MAX),
        pools_(trace_.pools, UINT8_MAX),
        sites_(trace_.sites, UINT32_MAX) {
    trace_.name = snapshot.name;
    trace_.source = "PyTorch snapshot";
    trace_.device = device;
  }

  Trace build(const std::vector<PickleValue>& entries) {
    trace_.events.reserve(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) add(entries[i], i);
    add_survivors();
    put_initial_first();
    find_recorded_peak();
    return std::move(trace_);
  }

 private:
  struct Live {
    std::uint32_t block = 0;
    bool requested = false;  // free_requested was seen
  };

  void add(const PickleValue& value, std::size_t index) {
    const auto place = [&] {
      return "device_traces[" + std::to_string(trace_.device) + "][" + std::to_string(index) + "]";
    };
    if (!value.is_dict()) schema_.dict(value, place());
    const PickleValue* action = value.find("action");
    if (action == nullptr || !action->is_text()) schema_.fail(place(), "\"action\" is missing");
    schema_.visit("device_traces");
    const auto kind = kind_of(action->text());
    if (!kind) return;
    TraceEvent event;
    event.kind = *kind;
    const auto number = [&](std::string_view key) -> std::optional<std::uint64_t> {
      const PickleValue* found = value.find(key);
      if (found == nullptr || found->is_none()) return {};
      if (!found->is_integer()) (void)schema_.number(value, key, place());
      return static_cast<std::uint64_t>(found->integer());
    };
    const bool about_memory = *kind != EventKind::oom && *kind != EventKind::marker;
    const auto address = number(*kind == EventKind::oom ? "device_free" : "addr");
    const auto bytes = number("size");
    if (!bytes) schema_.fail(place(), "\"size\" is missing");
    if (!address && about_memory) schema_.fail(place(), "\"addr\" is missing");
    event.address = address.value_or(0);
    event.bytes = *bytes;
    event.time_us = number("time_us").value_or(0);
    const auto stream = streams_(number("stream").value_or(0));
    if (!stream) schema_.fail(place(), "more than 65535 streams");
    event.stream = static_cast<std::uint16_t>(*stream);
    if (const std::string pool = Schema::pool(value); !pool.empty() && pool != "(0, 0)") {
      const auto number_of_pool = pools_(pool);
      if (!number_of_pool) schema_.fail(place(), "more than 255 memory pools");
      event.pool = static_cast<std::uint8_t>(*number_of_pool);
    }
    switch (*kind) {
      case EventKind::alloc:
        add_alloc(event, value);
        break;
      case EventKind::free_requested:
      case EventKind::free:
        add_free(event);
        break;
      case EventKind::oom:
        note_site(event, value);
        trace_.events.push_back(event);
        break;
      default:
        trace_.events.push_back(event);
        break;
    }
  }

  void note_site(TraceEvent& event, const PickleValue& value) {
    if (const std::string site = Schema::site(value); !site.empty()) {
      event.site = static_cast<std::uint32_t>(sites_(site).value_or(0));
    }
  }

  void add_alloc(TraceEvent event, const PickleValue& value) {
    if (const auto found = live_.find(event.address); found != live_.end()) {
      // Its free was lost (a ring buffer that ran over): it must have happened by now.
      TraceEvent lost = event;
      lost.kind = EventKind::free;
      lost.block = found->second.block;
      trace_.events.push_back(lost);
      ++lost_frees_;
    }
    note_site(event, value);
    event.block = trace_.blocks++;
    live_[event.address] = {event.block, false};
    trace_.events.push_back(event);
  }

  void add_free(TraceEvent event) {
    auto found = live_.find(event.address);
    if (found == live_.end()) {  // allocated before the recording began
      found = live_.emplace(event.address, Live{add_initial(event), false}).first;
    }
    event.block = found->second.block;
    if (event.kind == EventKind::free_requested) {
      if (found->second.requested) return;
      found->second.requested = true;
    } else {
      live_.erase(found);
    }
    trace_.events.push_back(event);
  }

  std::uint32_t add_initial(const TraceEvent& like) {
    TraceEvent event = like;
    event.kind = EventKind::alloc;
    event.block = trace_.blocks++;
    event.time_us = 0;
    initial_.push_back(event);
    return event.block;
  }

  // Blocks that are active at the end and that no event speaks of were live all along.
  void add_survivors() {
    for (const SnapshotSegment& segment : snapshot_.segments) {
      if (segment.device != trace_.device) continue;
      for (const SnapshotBlock& block : segment.blocks) {
        if ((!block.allocated && !block.pending_free) || live_.contains(block.address)) continue;
        TraceEvent event;
        event.address = block.address;
        event.bytes = block.requested_bytes;
        event.stream = static_cast<std::uint16_t>(streams_(segment.stream).value_or(0));
        if (!segment.pool.empty() && segment.pool != "(0, 0)") {
          event.pool = static_cast<std::uint8_t>(pools_(segment.pool).value_or(0));
        }
        if (!block.site.empty()) {
          event.site = static_cast<std::uint32_t>(sites_(block.site).value_or(0));
        }
        live_[block.address] = {add_initial(event), false};
      }
    }
  }

  void put_initial_first() {
    std::stable_sort(
        initial_.begin(), initial_.end(),
        [](const TraceEvent& a, const TraceEvent& b) { return a.address < b.address; });
    trace_.initial_events = initial_.size();
    trace_.events.insert(trace_.events.begin(), initial_.begin(), initial_.end());
    if (lost_frees_ != 0) {
      trace_.warnings.push_back(std::to_string(lost_frees_) +
                                " frees are missing; assumed at the next use of their address");
    }
  }

  // Undoes the driver's part of the recording from the final segments backwards.
  void find_recorded_peak() {
    std::uint64_t reserved = 0;
    for (const SnapshotSegment& segment : snapshot_.segments) {
      if (segment.device == trace_.device) reserved += segment.bytes;
    }
    std::uint64_t peak = reserved;
    bool consistent = true;
    for (auto event = trace_.events.rbegin(); event != trace_.events.rend(); ++event) {
      switch (event->kind) {
        case EventKind::segment_alloc:
        case EventKind::segment_map:
          consistent = consistent && reserved >= event->bytes;
          reserved -= event->bytes;
          break;
        case EventKind::segment_free:
        case EventKind::segment_unmap:
          reserved += event->bytes;
          break;
        default:
          break;
      }
      peak = std::max(peak, reserved);
    }
    if (!consistent) {
      trace_.warnings.emplace_back("the segments do not agree with the events");
      return;
    }
    trace_.recorded_peak_reserved_bytes = peak;
    trace_.starts_empty = reserved == 0 && trace_.initial_events == 0;
  }

  Schema& schema_;
  const Snapshot& snapshot_;
  Trace trace_;
  Interner<std::uint64_t> streams_;
  Interner<std::string> pools_;
  Interner<std::string> sites_;
  std::unordered_map<std::uint64_t, Live> live_;
  std::vector<TraceEvent> initial_;
  std::uint64_t lost_frees_ = 0;
};

}  // namespace

Snapshot read_snapshot(const PickleDocument& document) {
  Schema schema(document);
  Snapshot snapshot;
  snapshot.name = std::filesystem::path(document.name()).stem().string();
  const PickleValue& root = document.root();
  if (root.is_list()) {  // what torch.cuda.memory_snapshot() and MemPool.snapshot() return
    snapshot.segments = read_segments(schema, root);
    return snapshot;
  }
  schema.dict(root, "top level");
  snapshot.segments = read_segments(schema, schema.need(root, "segments", "top level"));
  const PickleValue* traces = root.find("device_traces");
  if (traces == nullptr || traces->is_none()) return snapshot;
  const auto& devices = schema.list(*traces, "device_traces");
  for (std::size_t device = 0; device < devices.size(); ++device) {
    const std::string place = "device_traces[" + std::to_string(device) + "]";
    const auto& entries = schema.list(devices[device], place);
    schema.visit(place);
    if (entries.empty()) continue;
    TraceBuilder builder(schema, snapshot, static_cast<DeviceIndex>(device));
    snapshot.traces.push_back(builder.build(entries));
  }
  return snapshot;
}

}  // namespace gapless
