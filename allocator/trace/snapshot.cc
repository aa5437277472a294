#include "allocator/trace/snapshot.h"

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/trace/pickle.h"

namespace gapless {
namespace {

// Reads fields with a path for errors (a text or a function that makes one), and pays for what it
// looks at: a pickle may refer to one value many times.
class Schema {
 public:
  explicit Schema(const PickleDocument& document)
      : document_(document), budget_(document.budget()) {}

  template <class Place>
  [[noreturn]] void fail(const Place& place, const std::string& cause) const {
    if constexpr (std::invocable<const Place&>) {
      throw InputError(document_.name(), place(), cause);
    } else {
      throw InputError(document_.name(), place, cause);
    }
  }
  [[nodiscard]] ReadBudget& budget() const { return budget_; }

  template <class Place>
  const PickleValue& dict(const PickleValue& value, const Place& place) const {
    if (!value.is_dict()) fail(place, std::string("expected a dict, found ") + value.kind_name());
    return value;
  }
  template <class Place>
  const std::vector<PickleValue>& list(const PickleValue& value, const Place& place) const {
    if (!value.is_list()) fail(place, std::string("expected a list, found ") + value.kind_name());
    return value.items();
  }
  template <class Place>
  const PickleValue* find(const PickleValue& dict, std::string_view key, const Place& place) const {
    budget_.work(1 + dict.items().size(), place);
    return dict.find(key);
  }
  template <class Place>
  const PickleValue& need(const PickleValue& dict, std::string_view key, const Place& place) const {
    const PickleValue* value = find(dict, key, place);
    if (value == nullptr) fail(place, "\"" + std::string(key) + "\" is missing");
    return *value;
  }
  template <class Place>
  std::optional<std::uint64_t> number(const PickleValue& dict, std::string_view key,
                                      const Place& place) const {
    const PickleValue* value = find(dict, key, place);
    if (value == nullptr || value->is_none()) return {};
    if (!value->is_integer()) {
      fail(field(place, key), std::string("expected an int, found ") + value->kind_name());
    }
    return static_cast<std::uint64_t>(value->integer());
  }
  template <class Place>
  std::uint64_t need_number(const PickleValue& dict, std::string_view key,
                            const Place& place) const {
    const auto value = number(dict, key, place);
    if (!value) fail(place, "\"" + std::string(key) + "\" is missing");
    return *value;
  }
  /// A size of memory, of which there is at most so much.
  template <class Place>
  void check_size(std::uint64_t bytes, std::string_view key, const Place& place) const {
    if (bytes <= kMostTraceBytes) return;
    const auto number = static_cast<std::int64_t>(bytes);  // a negative one, or a very large one
    fail(field(place, key), (number < 0 ? std::to_string(number) + " bytes" : format_bytes(bytes)) +
                                ": no GPU has memory of that size");
  }
  template <class Place>
  std::string_view text(const PickleValue& dict, std::string_view key, const Place& place) const {
    const PickleValue* value = find(dict, key, place);
    return value != nullptr && value->is_text() ? value->text() : std::string_view();
  }

  // "(0, 1)" of a pair of ints; empty where there is none.
  template <class Place>
  std::string pool(const PickleValue& dict, const Place& place) const {
    for (const std::string_view key : {"segment_pool_id", "pool_id"}) {
      const PickleValue* value = find(dict, key, place);
      if (value == nullptr || !value->is_list() || value->items().size() != 2) continue;
      const auto& pair = value->items();
      if (!pair[0].is_integer() || !pair[1].is_integer()) continue;
      return "(" + std::to_string(pair[0].integer()) + ", " + std::to_string(pair[1].integer()) +
             ")";
    }
    return {};
  }

  // "train.py:120 forward": the innermost frame of a Python file, else the innermost frame. It
  // stays where it is as long as this.
  template <class Place>
  const std::string& site(const PickleValue& dict, const Place& place) {
    static const std::string kUnknown;
    const PickleValue* frames = find(dict, "frames", place);
    if (frames == nullptr || !frames->is_list()) return kUnknown;
    const Frame* chosen = nullptr;
    constexpr std::size_t kLook = 64;
    const auto& all = frames->items();
    for (std::size_t i = 0; i < std::min(all.size(), kLook); ++i) {
      budget_.work(1, place);
      if (!all[i].is_dict()) continue;
      const Frame& frame = frame_of(all[i], place);
      if (chosen == nullptr || frame.of_python) chosen = &frame;
      if (frame.of_python) break;
    }
    return chosen == nullptr ? kUnknown : chosen->site;
  }

 private:
  struct Frame {
    std::string site;
    bool of_python = false;
  };

  template <class Place>
  static std::string field(const Place& place, std::string_view key) {
    if constexpr (std::invocable<const Place&>) {
      return place() + "." + std::string(key);
    } else {
      return std::string(place) + "." + std::string(key);
    }
  }

  // Thousands of stacks share a few hundred frames: each is read once.
  template <class Place>
  const Frame& frame_of(const PickleValue& dict, const Place& place) {
    const auto known = frames_.find(&dict.items());
    if (known != frames_.end()) return known->second;
    const std::string_view file = text(dict, "filename", place);
    const std::string_view name = text(dict, "name", place);
    constexpr std::uint64_t kLongestNumber = 24;
    const std::uint64_t most = file.size() + name.size() + kLongestNumber;
    budget_.work(most, place);
    budget_.hold(kNodeBytes + ReadBudget::allocated_text(most), place);
    Frame frame;
    frame.of_python = file.ends_with(".py");
    frame.site.reserve(most);
    frame.site = file;
    if (const PickleValue* line = find(dict, "line", place);
        line != nullptr && line->is_integer()) {
      frame.site += ":" + std::to_string(line->integer());
    }
    if (!name.empty()) frame.site.append(" ").append(name);
    return frames_.emplace(&dict.items(), std::move(frame)).first->second;
  }

  static constexpr std::uint64_t kNodeBytes =
      ReadBudget::allocated(sizeof(void*) * 2 + sizeof(Frame)) + 2 * sizeof(void*);

  const PickleDocument& document_;
  ReadBudget& budget_;
  std::unordered_map<const void*, Frame> frames_;
};

DeviceIndex read_device(const Schema& schema, std::uint64_t number, const std::string& place) {
  if (number >= kMostDevices) {
    schema.fail(place, "device " + std::to_string(static_cast<std::int64_t>(number)) +
                           "; a process has at most " + std::to_string(kMostDevices));
  }
  return static_cast<DeviceIndex>(number);
}

// What reports make of each segment and each block later, beside what is held here.
constexpr std::uint64_t kReportOfSegment = 2 * KiB;
constexpr std::uint64_t kReportOfBlock = 128;

template <class Place>
SnapshotBlock read_block(Schema& schema, const PickleValue& value, std::uint64_t address,
                         const Place& place) {
  const PickleValue& record = schema.dict(value, place);
  SnapshotBlock block;
  block.bytes = schema.need_number(record, "size", place);
  block.address = schema.number(record, "address", place).value_or(address);
  block.requested_bytes = schema.number(record, "requested_size", place).value_or(block.bytes);
  schema.check_size(block.requested_bytes, "requested_size", place);
  const std::string_view state = schema.text(record, "state", place);
  block.allocated = state == "active_allocated";
  block.pending_free = state == "active_pending_free" || state == "active_awaiting_free";
  if (!block.allocated && !block.pending_free && state != "inactive") {
    constexpr std::size_t kShown = 100;
    schema.fail(place, "unknown state \"" + std::string(state.substr(0, kShown)) + "\"");
  }
  if (block.allocated || block.pending_free) {
    const std::string& site = schema.site(record, place);
    schema.budget().hold(ReadBudget::allocated_text(site.size()), place);
    schema.budget().work(site.size() / 16, place);
    block.site = site;
  }
  return block;
}

std::vector<SnapshotSegment> read_segments(Schema& schema, const PickleValue& value) {
  std::vector<SnapshotSegment> segments;
  const auto& list = schema.list(value, "segments");
  schema.budget().make_room(segments, list.size(), "segments");
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = "segments[" + std::to_string(i) + "]";
    const PickleValue& source = schema.dict(list[i], place);
    schema.budget().hold(kReportOfSegment, place);
    SnapshotSegment& segment = segments.emplace_back();
    segment.device =
        read_device(schema, schema.number(source, "device", place).value_or(0), place + ".device");
    segment.address = schema.need_number(source, "address", place);
    segment.bytes = schema.need_number(source, "total_size", place);
    schema.check_size(segment.bytes, "total_size", place);
    total += segment.bytes;
    schema.check_size(total, "total_size", place);
    segment.stream = schema.number(source, "stream", place).value_or(0);
    const std::string_view type = schema.text(source, "segment_type", place);
    schema.budget().hold(ReadBudget::allocated_text(type.size()), place);
    schema.budget().work(type.size() / 16, place);
    segment.type = type;
    segment.pool = schema.pool(source, place);
    if (const PickleValue* expandable = schema.find(source, "is_expandable", place)) {
      segment.expandable = expandable->is_integer() && expandable->integer() != 0;
    }
    const auto& blocks = schema.list(schema.need(source, "blocks", place), place + ".blocks");
    schema.budget().make_room(segment.blocks, blocks.size(), place);
    schema.budget().hold(blocks.size() * kReportOfBlock, place);
    std::uint64_t left = segment.bytes;
    for (std::size_t j = 0; j < blocks.size(); ++j) {
      const auto at = [&] { return place + ".blocks[" + std::to_string(j) + "]"; };
      const std::uint64_t address = segment.address + (segment.bytes - left);
      SnapshotBlock block = read_block(schema, blocks[j], address, at);
      if (block.bytes > left) schema.fail(at, "the blocks are larger than their segment");
      left -= block.bytes;
      segment.blocks.push_back(std::move(block));
    }
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

// What an unordered_map takes for one more entry of that size.
constexpr std::uint64_t node_bytes(std::size_t entry) {
  return ReadBudget::allocated(2 * sizeof(void*) + entry) + 2 * sizeof(void*);
}

// Gives a small number to each of a few values. Keys that are views point to where the values came
// from, which outlives this.
template <class Value, class Key = Value>
class Interner {
 public:
  Interner(std::vector<Value>& values, std::size_t most, ReadBudget& budget)
      : values_(values), most_(most), budget_(budget) {
    for (std::size_t i = 0; i < values.size(); ++i) numbers_.emplace(values[i], i);
  }
  template <class Place>
  std::optional<std::size_t> operator()(const Key& key, const Place& place) {
    if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
    if (values_.size() >= most_) return {};
    std::uint64_t bytes = node_bytes(sizeof(std::pair<const Key, std::size_t>));
    if constexpr (requires { key.size(); }) bytes += ReadBudget::allocated_text(key.size());
    budget_.hold(bytes, place);
    budget_.make_room(values_, 1, place);
    numbers_.emplace(key, values_.size());
    values_.emplace_back(key);
    return values_.size() - 1;
  }

 private:
  std::vector<Value>& values_;
  std::size_t most_;
  ReadBudget& budget_;
  std::unordered_map<Key, std::size_t> numbers_;
};

using SegmentList = std::vector<const SnapshotSegment*>;

// Builds the trace of one device: numbers the blocks, finds those that were live before.
class TraceBuilder {
 public:
  TraceBuilder(Schema& schema, const Snapshot& snapshot, const SegmentList& segments,
               DeviceIndex device)
      : schema_(schema),
        budget_(schema.budget()),
        segments_(segments),
        streams_(trace_.streams, kMostStreams, budget_),
        pools_(trace_.pools, kMostPools, budget_),
        sites_(trace_.sites, UINT32_MAX, budget_) {
    trace_.name = snapshot.name;
    trace_.source = "PyTorch snapshot";
    trace_.device = device;
  }

  Trace build(const std::vector<PickleValue>& entries) {
    budget_.make_room(trace_.events, entries.size(), list_place());
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
  static constexpr std::uint64_t kLiveBytes = node_bytes(sizeof(std::pair<std::uint64_t, Live>));

  [[nodiscard]] std::string list_place() const {
    return "device_traces[" + std::to_string(trace_.device) + "]";
  }

  void add(const PickleValue& value, std::size_t index) {
    const auto place = [&] { return list_place() + "[" + std::to_string(index) + "]"; };
    schema_.dict(value, place);
    const PickleValue* action = schema_.find(value, "action", place);
    if (action == nullptr || !action->is_text()) schema_.fail(place, "\"action\" is missing");
    const auto kind = kind_of(action->text());
    if (!kind) return;
    TraceEvent event;
    event.kind = *kind;
    const bool about_memory = *kind != EventKind::oom && *kind != EventKind::marker;
    const auto address =
        schema_.number(value, *kind == EventKind::oom ? "device_free" : "addr", place);
    event.bytes = schema_.need_number(value, "size", place);
    if (!address && about_memory) schema_.fail(place, "\"addr\" is missing");
    if (about_memory) schema_.check_size(event.bytes, "size", place);
    event.address = address.value_or(0);
    event.time_us = schema_.number(value, "time_us", place).value_or(0);
    event.stream = stream_number(schema_.number(value, "stream", place).value_or(0), place);
    event.pool = pool_number(schema_.pool(value, place), place);
    switch (*kind) {
      case EventKind::alloc:
        event.site = site_number(schema_.site(value, place), place);
        add_alloc(event, place);
        break;
      case EventKind::free_requested:
      case EventKind::free:
        add_free(event, place);
        break;
      case EventKind::oom:
        event.site = site_number(schema_.site(value, place), place);
        push(event, place);
        break;
      default:
        push(event, place);
        break;
    }
  }

  template <class Place>
  std::uint16_t stream_number(std::uint64_t stream, const Place& place) {
    const auto number = streams_(stream, place);
    if (!number) schema_.fail(place, "more than " + std::to_string(kMostStreams) + " streams");
    return static_cast<std::uint16_t>(*number);
  }
  template <class Place>
  std::uint8_t pool_number(const std::string& pool, const Place& place) {
    if (pool.empty() || pool == "(0, 0)") return 0;
    const auto number = pools_(pool, place);
    if (!number) schema_.fail(place, "more than " + std::to_string(kMostPools) + " memory pools");
    return static_cast<std::uint8_t>(*number);
  }
  template <class Place>
  std::uint32_t site_number(const std::string& site, const Place& place) {
    if (site.empty()) return 0;
    budget_.work(site.size() / 16, place);
    return static_cast<std::uint32_t>(sites_(site, place).value_or(0));
  }
  template <class Place>
  void push(const TraceEvent& event, const Place& place) {
    budget_.make_room(trace_.events, 1, place);
    trace_.events.push_back(event);
  }
  template <class Place>
  void set_live(std::uint64_t address, std::uint32_t block, const Place& place) {
    const auto [entry, added] = live_.insert_or_assign(address, Live{block, false});
    if (added) budget_.hold(kLiveBytes, place);
  }

  template <class Place>
  void add_alloc(TraceEvent event, const Place& place) {
    if (const auto found = live_.find(event.address); found != live_.end()) {
      // Its free was lost (a ring buffer that ran over): it must have happened by now.
      TraceEvent lost = event;
      lost.kind = EventKind::free;
      lost.block = found->second.block;
      push(lost, place);
      ++lost_frees_;
    }
    event.block = trace_.blocks++;
    set_live(event.address, event.block, place);
    push(event, place);
  }

  template <class Place>
  void add_free(TraceEvent event, const Place& place) {
    auto found = live_.find(event.address);
    if (found == live_.end()) {  // allocated before the recording began
      set_live(event.address, add_initial(event, place), place);
      found = live_.find(event.address);
    }
    event.block = found->second.block;
    if (event.kind == EventKind::free_requested) {
      if (found->second.requested) return;
      found->second.requested = true;
    } else {
      live_.erase(found);
      budget_.give_back(kLiveBytes);
    }
    push(event, place);
  }

  template <class Place>
  std::uint32_t add_initial(const TraceEvent& like, const Place& place) {
    TraceEvent event = like;
    event.kind = EventKind::alloc;
    event.block = trace_.blocks++;
    event.time_us = 0;
    budget_.make_room(initial_, 1, place);
    initial_.push_back(event);
    return event.block;
  }

  // Blocks that are active at the end and that no event speaks of were live all along.
  void add_survivors() {
    const std::string place = list_place() + ": blocks live before";
    for (const SnapshotSegment* segment : segments_) {
      for (const SnapshotBlock& block : segment->blocks) {
        budget_.work(1, place);
        if ((!block.allocated && !block.pending_free) || live_.contains(block.address)) continue;
        TraceEvent event;
        event.address = block.address;
        event.bytes = block.requested_bytes;
        event.stream = stream_number(segment->stream, place);
        event.pool = pool_number(segment->pool, place);
        event.site = site_number(block.site, place);
        set_live(block.address, add_initial(event, place), place);
      }
    }
  }

  void put_initial_first() {
    std::stable_sort(
        initial_.begin(), initial_.end(),
        [](const TraceEvent& a, const TraceEvent& b) { return a.address < b.address; });
    trace_.initial_events = initial_.size();
    budget_.make_room(trace_.events, initial_.size(), list_place());
    trace_.events.insert(trace_.events.begin(), initial_.begin(), initial_.end());
    if (lost_frees_ != 0) {
      trace_.warnings.push_back(std::to_string(lost_frees_) +
                                " frees are missing; assumed at the next use of their address");
    }
  }

  // Undoes the driver's part of the recording from the final segments backwards.
  void find_recorded_peak() {
    std::uint64_t reserved = 0;
    for (const SnapshotSegment* segment : segments_) reserved += segment->bytes;
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
          consistent = consistent && reserved <= kMostTraceBytes;
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
  ReadBudget& budget_;
  const SegmentList& segments_;
  Trace trace_;
  Interner<std::uint64_t> streams_;
  Interner<std::string> pools_;
  Interner<std::string, std::string_view> sites_;
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
  const PickleValue* traces = schema.find(root, "device_traces", "top level");
  if (traces == nullptr || traces->is_none()) return snapshot;
  std::map<DeviceIndex, SegmentList> by_device;
  for (const SnapshotSegment& segment : snapshot.segments) {
    SegmentList& segments = by_device[segment.device];
    schema.budget().make_room(segments, 1, "segments");
    segments.push_back(&segment);
  }
  const auto& devices = schema.list(*traces, "device_traces");
  if (devices.size() > kMostDevices) {
    schema.fail("device_traces", std::to_string(devices.size()) +
                                     " devices; a process has at most " +
                                     std::to_string(kMostDevices));
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto& entries = schema.list(devices[i], "device_traces[" + std::to_string(i) + "]");
    if (entries.empty()) continue;
    const auto device = static_cast<DeviceIndex>(i);
    TraceBuilder builder(schema, snapshot, by_device[device], device);
    snapshot.traces.push_back(builder.build(entries));
  }
  return snapshot;
}

}  // namespace gapless
