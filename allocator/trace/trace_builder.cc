#include "allocator/trace/trace_builder.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "allocator/base/bytes.h"
#include "allocator/trace/interner.h"
#include "allocator/trace/snapshot_writer.h"

namespace gapless {
namespace {

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

}  // namespace

class TraceBuilder::Builder {
 public:
  Builder(const SnapshotFields& fields, StackReader& stacks, const Snapshot& snapshot,
          const SegmentList& segments, DeviceIndex device, std::uint64_t events)
      : fields_(fields),
        stacks_(stacks),
        budget_(fields.budget()),
        segments_(segments),
        streams_(trace_.streams, kMostStreams, budget_),
        pools_(trace_.pools, kMostPools, budget_) {
    trace_.name = snapshot.name;
    trace_.source = "PyTorch snapshot";
    trace_.device = device;
    trace_.site_stacks = {0};
    if (static_cast<std::size_t>(device) < snapshot.added.size()) {
      added_ = snapshot.added[static_cast<std::size_t>(device)];
      if (!added_->source.empty()) trace_.source = added_->source;
    }
    budget_.make_room(trace_.events, events, list_place());
  }

  void add(const PickleValue& value, std::size_t index) {
    const auto place = [&] { return list_place() + "[" + std::to_string(index) + "]"; };
    fields_.dict(value, place);
    const PickleValue* action = fields_.find(value, "action", place);
    if (action == nullptr || !action->is_text()) fields_.fail(place, "\"action\" is missing");
    const auto kind = kind_of(action->text());
    if (!kind) return;
    if (added_ && fields_.find(value, kAddedByGapless, place) != nullptr) return;
    TraceEvent event;
    event.kind = *kind;
    const bool about_memory = *kind != EventKind::oom && *kind != EventKind::marker;
    const auto address =
        fields_.number(value, *kind == EventKind::oom ? "device_free" : "addr", place);
    event.bytes = fields_.need_number(value, "size", place);
    if (!address && about_memory) fields_.fail(place, "\"addr\" is missing");
    if (about_memory) fields_.check_size(event.bytes, "size", place);
    event.address = address.value_or(0);
    event.time_us = fields_.number(value, "time_us", place).value_or(0);
    event.stream = stream_number(fields_.number(value, "stream", place).value_or(0), place);
    event.pool = pool_number(fields_.pool(value, place), place);
    event.site = site_number(stacks_.node_of(value, place), place);
    switch (*kind) {
      case EventKind::alloc:
        add_alloc(event, place);
        break;
      case EventKind::free_requested:
      case EventKind::free:
        add_free(event, place);
        break;
      default:
        push(event, place);
        break;
    }
  }

  Trace finish() {
    add_survivors();
    put_initial_first();
    if (added_) forget_added();
    if (added_ && added_->segments) {
      trace_.recorded_peak_reserved_bytes = added_->recorded_peak_reserved_bytes;
      trace_.starts_empty = added_->starts_empty;
    } else {
      find_recorded_peak();
      add_segments();
    }
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

  template <class Place>
  std::uint16_t stream_number(std::uint64_t stream, const Place& place) {
    const auto number = streams_(stream, place);
    if (!number) fields_.fail(place, "more than " + std::to_string(kMostStreams) + " streams");
    return static_cast<std::uint16_t>(*number);
  }
  template <class Place>
  std::uint8_t pool_number(const std::string& pool, const Place& place) {
    if (pool.empty() || pool == "(0, 0)") return 0;
    const auto number = pools_(pool, place);
    if (!number) fields_.fail(place, "more than " + std::to_string(kMostPools) + " memory pools");
    return static_cast<std::uint8_t>(*number);
  }
  template <class Place>
  std::uint32_t site_number(std::uint32_t node, const Place& place) {
    if (node == 0) return 0;
    if (node < sites_.size() && sites_[node] != 0) return sites_[node];
    const std::string& label = stacks_.label(node, place);
    budget_.work(label.size() / 16, place);
    budget_.hold(ReadBudget::allocated_text(label.size()), place);
    budget_.make_room(trace_.sites, 1, place);
    budget_.make_room(trace_.site_stacks, 1, place);
    const auto number = static_cast<std::uint32_t>(trace_.sites.size());
    trace_.sites.push_back(label);
    trace_.site_stacks.push_back(node);
    if (node >= sites_.size()) {
      budget_.make_room(sites_, node + 1 - sites_.size(), place);
      sites_.resize(node + 1);
    }
    sites_[node] = number;
    return number;
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
        event.site = site_number(block.stack, place);
        set_live(block.address, add_initial(event, place), place);
        if (!block.pending_free) continue;
        event = initial_.back();
        event.kind = EventKind::free_requested;
        budget_.make_room(initial_, 1, place);
        initial_.push_back(event);
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

  // What blocks' events were given for viewers.
  void forget_added() {
    for (TraceEvent& event : trace_.events) {
      const bool is_free = event.kind == EventKind::free || event.kind == EventKind::free_requested;
      if (!is_free && event.kind != EventKind::alloc) continue;
      if (added_->addresses) event.address = 0;
      if (added_->sizes_of_frees && is_free) event.bytes = 0;
    }
  }

  void add_segments() {
    const std::string place = list_place() + ": segments";
    trace_.has_segments = true;
    budget_.make_room(trace_.segments, segments_.size(), place);
    for (const SnapshotSegment* segment : segments_) {
      budget_.hold(ReadBudget::allocated_text(segment->type.size()), place);
      trace_.segments.push_back(
          {segment->address, segment->bytes, stream_number(segment->stream, place),
           pool_number(segment->pool, place), segment->expandable, segment->type});
    }
    std::stable_sort(
        trace_.segments.begin(), trace_.segments.end(),
        [](const TraceSegment& a, const TraceSegment& b) { return a.address < b.address; });
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

  const SnapshotFields& fields_;
  StackReader& stacks_;
  ReadBudget& budget_;
  const SegmentList& segments_;
  Trace trace_;
  std::optional<Snapshot::Added> added_;  // in a file of ours
  Interner<std::uint64_t> streams_;
  Interner<std::string> pools_;
  std::vector<std::uint32_t> sites_;  // by node of the stack; 0 where none is known yet
  std::unordered_map<std::uint64_t, Live> live_;
  std::vector<TraceEvent> initial_;
  std::uint64_t lost_frees_ = 0;
};

TraceBuilder::TraceBuilder(const SnapshotFields& fields, StackReader& stacks,
                           const Snapshot& snapshot, const SegmentList& segments,
                           DeviceIndex device, std::uint64_t events)
    : builder_(std::make_unique<Builder>(fields, stacks, snapshot, segments, device, events)) {}
TraceBuilder::~TraceBuilder() = default;

void TraceBuilder::add(const PickleValue& event, std::size_t index) { builder_->add(event, index); }

Trace TraceBuilder::finish() { return builder_->finish(); }

}  // namespace gapless
