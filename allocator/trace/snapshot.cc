#include "allocator/trace/snapshot.h"

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "allocator/base/bytes.h"
#include "allocator/trace/pickle.h"
#include "allocator/trace/snapshot_fields.h"
#include "allocator/trace/snapshot_writer.h"
#include "allocator/trace/stack_reader.h"
#include "allocator/trace/trace_builder.h"

namespace gapless {
namespace {

DeviceIndex read_device(const SnapshotFields& fields, std::uint64_t number,
                        const std::string& place) {
  if (number >= kMostDevices) {
    fields.fail(place, "device " + std::to_string(static_cast<std::int64_t>(number)) +
                           "; a process has at most " + std::to_string(kMostDevices));
  }
  return static_cast<DeviceIndex>(number);
}

// What reports make of each segment and each block later, beside what is held here.
constexpr std::uint64_t kReportOfSegment = 2 * KiB;
constexpr std::uint64_t kReportOfBlock = 128;

// What says how a block was asked for: of old its last allocation stood in its "history".
template <class Place>
const PickleValue& asked_for(const SnapshotFields& fields, const PickleValue& record,
                             const Place& place) {
  const PickleValue* history = fields.find(record, "history", place);
  if (history == nullptr || !history->is_list() || history->items().empty()) return record;
  const PickleValue& last = history->items().front();
  return last.is_dict() ? last : record;
}

template <class Place>
SnapshotBlock read_block(const SnapshotFields& fields, StackReader& stacks,
                         const PickleValue& value, std::uint64_t address, const Place& place) {
  const PickleValue& record = fields.dict(value, place);
  SnapshotBlock block;
  block.bytes = fields.need_number(record, "size", place);
  block.address = fields.number(record, "address", place).value_or(address);
  const PickleValue& asked = asked_for(fields, record, place);
  block.requested_bytes =
      fields.number(record, "requested_size", place)
          .value_or(fields.number(asked, "real_size", place).value_or(block.bytes));
  fields.check_size(block.requested_bytes, "requested_size", place);
  const std::string_view state = fields.text(record, "state", place);
  block.allocated = state == "active_allocated";
  block.pending_free = state == "active_pending_free" || state == "active_awaiting_free";
  if (!block.allocated && !block.pending_free && state != "inactive") {
    constexpr std::size_t kShown = 100;
    fields.fail(place, "unknown state \"" + std::string(state.substr(0, kShown)) + "\"");
  }
  if (block.allocated || block.pending_free) {
    block.stack = stacks.node_of(record, place);
    if (block.stack == 0) block.stack = stacks.node_of(asked, place);
    const std::string& site = stacks.label(block.stack, place);
    fields.budget().hold(ReadBudget::allocated_text(site.size()), place);
    fields.budget().work(site.size() / 16, place);
    block.site = site;
  }
  return block;
}

std::vector<SnapshotSegment> read_segments(const SnapshotFields& fields, StackReader& stacks,
                                           const PickleValue& value) {
  std::vector<SnapshotSegment> segments;
  const auto& list = fields.list(value, "segments");
  fields.budget().make_room(segments, list.size(), "segments");
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = "segments[" + std::to_string(i) + "]";
    const PickleValue& source = fields.dict(list[i], place);
    fields.budget().hold(kReportOfSegment, place);
    SnapshotSegment& segment = segments.emplace_back();
    segment.device =
        read_device(fields, fields.number(source, "device", place).value_or(0), place + ".device");
    segment.address = fields.need_number(source, "address", place);
    segment.bytes = fields.need_number(source, "total_size", place);
    fields.check_size(segment.bytes, "total_size", place);
    total += segment.bytes;
    fields.check_size(total, "total_size", place);
    segment.stream = fields.number(source, "stream", place).value_or(0);
    const std::string_view type = fields.text(source, "segment_type", place);
    fields.budget().hold(ReadBudget::allocated_text(type.size()), place);
    fields.budget().work(type.size() / 16, place);
    segment.type = type;
    segment.pool = fields.pool(source, place);
    if (const PickleValue* expandable = fields.find(source, "is_expandable", place)) {
      segment.expandable = expandable->is_integer() && expandable->integer() != 0;
    }
    const auto& blocks = fields.list(fields.need(source, "blocks", place), place + ".blocks");
    fields.budget().make_room(segment.blocks, blocks.size(), place);
    fields.budget().hold(blocks.size() * kReportOfBlock, place);
    std::uint64_t left = segment.bytes;
    for (std::size_t j = 0; j < blocks.size(); ++j) {
      const auto at = [&] { return place + ".blocks[" + std::to_string(j) + "]"; };
      const std::uint64_t address = segment.address + (segment.bytes - left);
      SnapshotBlock block = read_block(fields, stacks, blocks[j], address, at);
      if (block.bytes > left) fields.fail(at, "the blocks are larger than their segment");
      left -= block.bytes;
      segment.blocks.push_back(std::move(block));
    }
  }
  return segments;
}

std::vector<Snapshot::Added> read_added(const SnapshotFields& fields, const PickleValue& root) {
  std::vector<Snapshot::Added> all;
  const PickleValue* value = fields.find(root, kAddedByGapless, "top level");
  if (value == nullptr) return all;
  const auto& devices = fields.list(*value, std::string(kAddedByGapless));
  if (devices.size() > kMostDevices) fields.fail(std::string(kAddedByGapless), "too many devices");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::string place = std::string(kAddedByGapless) + "[" + std::to_string(i) + "]";
    const PickleValue& device = fields.dict(devices[i], place);
    Snapshot::Added& added = all.emplace_back();
    added.segments = fields.number(device, "segments", place).value_or(0) != 0;
    added.addresses = fields.number(device, "addresses", place).value_or(0) != 0;
    added.sizes_of_frees = fields.number(device, "sizes_of_frees", place).value_or(0) != 0;
    added.starts_empty = fields.number(device, "starts_empty", place).value_or(0) != 0;
    const std::string_view source = fields.text(device, "source", place);
    fields.budget().hold(2 * ReadBudget::allocated_text(source.size()), place);
    fields.budget().work(source.size() / 16, place);
    added.source = source;
    added.recorded_peak_reserved_bytes =
        fields.number(device, "recorded_peak_reserved_bytes", place).value_or(0);
    fields.check_size(added.recorded_peak_reserved_bytes, "recorded_peak_reserved_bytes", place);
  }
  return all;
}

// How many events each device has that has some.
std::map<DeviceIndex, std::uint64_t> count_events(const SnapshotFields& fields,
                                                  const PickleValue* traces) {
  std::map<DeviceIndex, std::uint64_t> counts;
  if (traces == nullptr || traces->is_none()) return counts;
  const auto& devices = fields.list(*traces, "device_traces");
  if (devices.size() > kMostDevices) {
    fields.fail("device_traces", std::to_string(devices.size()) +
                                     " devices; a process has at most " +
                                     std::to_string(kMostDevices));
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    (void)fields.list(devices[i], "device_traces[" + std::to_string(i) + "]");
    const std::uint64_t events = PickleDocument::elements_of(devices[i]);
    if (events != 0) counts[static_cast<DeviceIndex>(i)] = events;
  }
  return counts;
}

// Builds one trace after the other, as the events come.
class TracesOfDevices {
 public:
  TracesOfDevices(const SnapshotFields& fields, StackReader& stacks, const Snapshot& snapshot,
                  const std::map<DeviceIndex, SegmentList>& segments,
                  const std::map<DeviceIndex, std::uint64_t>& counts)
      : fields_(fields), stacks_(stacks), snapshot_(snapshot), segments_(segments), left_(counts) {}

  void add(DeviceIndex device, std::size_t index, const PickleValue& event) {
    while (!builder_ || device_ != device) {
      // A list that was not there when they were counted.
      if (!begin_next()) fields_.fail("device_traces", "the file changed while it was read");
    }
    builder_->add(event, index);
  }
  std::vector<Trace> finish() {
    while (begin_next()) {
    }
    return std::move(traces_);
  }

 private:
  // The next device's; false after the last.
  bool begin_next() {
    if (builder_) traces_.push_back(builder_->finish());
    builder_.reset();
    if (left_.empty()) return false;
    const auto [device, events] = *left_.begin();
    left_.erase(left_.begin());
    static const SegmentList kNone;
    const auto segments = segments_.find(device);
    builder_.emplace(fields_, stacks_, snapshot_,
                     segments == segments_.end() ? kNone : segments->second, device, events);
    device_ = device;
    return true;
  }

  const SnapshotFields& fields_;
  StackReader& stacks_;
  const Snapshot& snapshot_;
  const std::map<DeviceIndex, SegmentList>& segments_;
  std::map<DeviceIndex, std::uint64_t> left_;
  std::optional<TraceBuilder> builder_;
  DeviceIndex device_ = 0;
  std::vector<Trace> traces_;
};

}  // namespace

Snapshot read_snapshot(const PickleDocument& document, bool still_devices) {
  const SnapshotFields fields(document);
  StackReader stacks(fields);
  Snapshot snapshot;
  snapshot.name = std::filesystem::path(document.name()).stem().string();
  const PickleValue& root = document.root();
  const PickleValue* traces = nullptr;
  if (root.is_list()) {  // what torch.cuda.memory_snapshot() and MemPool.snapshot() return
    snapshot.segments = read_segments(fields, stacks, root);
  } else {
    fields.dict(root, "top level");
    snapshot.segments = read_segments(fields, stacks, fields.need(root, "segments", "top level"));
    snapshot.added = read_added(fields, root);
    traces = fields.find(root, kDeviceTraces, "top level");
  }
  std::map<DeviceIndex, SegmentList> by_device;
  for (const SnapshotSegment& segment : snapshot.segments) {
    SegmentList& segments = by_device[segment.device];
    fields.budget().make_room(segments, 1, "segments");
    segments.push_back(&segment);
  }
  std::map<DeviceIndex, std::uint64_t> counts = count_events(fields, traces);
  const bool any = !counts.empty();
  if (still_devices) {
    for (const auto& [device, segments] : by_device) counts.try_emplace(device, 0);
  }
  TracesOfDevices all(fields, stacks, snapshot, by_device, counts);
  if (any) {
    document.each_element(kDeviceTraces,
                          [&](std::size_t device, std::size_t index, const PickleValue& event) {
                            all.add(static_cast<DeviceIndex>(device), index, event);
                          });
  }
  snapshot.traces = all.finish();
  const auto tree = std::make_shared<const CallStacks>(stacks.take());
  for (Trace& trace : snapshot.traces) trace.stacks = tree;
  return snapshot;
}

}  // namespace gapless
