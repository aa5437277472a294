#include "allocator/report/memory_state.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "allocator/base/byte_source.h"
#include "allocator/base/error.h"
#include "allocator/base/json_text.h"
#include "allocator/base/read_budget.h"
#include "allocator/trace/layout.h"
#include "allocator/trace/load.h"
#include "allocator/trace/pickle.h"

namespace gapless {
namespace {

using nlohmann::json;

// A node of a map of texts.
constexpr std::uint64_t kNodeBytes = 64;

// Reads what write_dump wrote, on the file's budget.
class DumpReader {
 public:
  DumpReader(const std::string& text, const std::string& name)
      : text_(text), name_(name), budget_(name, text.size()) {}

  MemoryState read() {
    state_.name = name_;
    state_.source = "gapless dump";
    const json document = parse_json(text_, budget_, "top level");
    const JsonFields fields(document, name_, "");
    if (!fields.has("gapless_dump")) {
      throw InputError(name_, "top level", "not a gapless dump (\"gapless_dump\" is missing)");
    }
    if (const std::uint64_t format = fields.number("gapless_dump"); format != 1) {
      fields.fail("gapless_dump",
                  "dump format " + std::to_string(format) + "; this version reads format 1");
    }
    const auto& devices = fields.list("devices", kMostDevices);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      read_device(JsonFields(devices[i], name_, "devices[" + std::to_string(i) + "]"));
    }
    return std::move(state_);
  }

 private:
  void read_device(const JsonFields& device) {
    device_ = static_cast<DeviceIndex>(device.number("device", kMostDevices - 1));
    sites_.clear();
    if (device.has("call_sites")) {
      each(device, "call_sites", [&](const JsonFields& entry) {
        const std::string& site = entry.text("call_site");
        budget_.hold(2 * kNodeBytes + ReadBudget::allocated_text(site.size()), "call_sites");
        sites_[entry.number("address")] = site;
      });
    }
    each(device, "home", [&](const JsonFields& entry) { add_home_block(entry); });
    follows_ = nullptr;
    each(device, "window_blocks", [&](const JsonFields& entry) { add_window_block(entry); });
    if (device.has("freed")) {
      each(device, "freed", [&](const JsonFields& entry) { add_freed(entry); });
    }
    state_.joinable_free_bytes += device.number("free_page_bytes", kMostTraceBytes);
    state_.page_bytes = device.number("page_bytes", kMostTraceBytes);
    state_.windows += static_cast<std::uint32_t>(device.number("windows", UINT32_MAX));
  }

  template <class Read>
  void each(const JsonFields& device, const char* key, const Read& read) {
    const auto& list = device.list(key, UINT64_MAX);
    const std::string place = device.place_of(key);
    for (std::size_t i = 0; i < list.size(); ++i) {
      read(JsonFields(list[i], name_, place + "[" + std::to_string(i) + "]"));
    }
  }

  StateBlock read_block(const JsonFields& entry) {
    StateBlock block;
    block.address = entry.number("address");
    block.bytes = entry.number("bytes", kMostTraceBytes);
    block.stream = entry.number("stream");
    if (entry.has("given")) {
      block.before =
          entry.number("given", block.address + block.bytes, block.address) - block.address;
    }
    if (const auto site = sites_.find(block.given_address()); site != sites_.end()) {
      block.site = site->second;
      budget_.hold(ReadBudget::allocated_text(block.site.size()), "call_sites");
    }
    total_bytes_ += block.bytes;
    if (total_bytes_ > kMostTraceBytes) entry.fail("bytes", "more than 1 PiB in all");
    return block;
  }

  // Home blocks, cut into segments where addresses do not follow one another. Memory lent to
  // windows is told with the window's blocks, so it is left out here.
  void add_home_block(const JsonFields& entry) {
    const std::string& kind = entry.text("kind");
    StateBlock block = read_block(entry);
    if (kind == "lent") {
      follows_ = nullptr;
      return;
    }
    if (kind == "live") {
      block.kind = StateBlock::Kind::live;
    } else if (kind == "held") {
      block.kind = StateBlock::Kind::pending;
    } else if (kind != "hole") {
      constexpr std::size_t kShown = 100;
      entry.fail("kind", "unknown kind of block \"" + kind.substr(0, kShown) + "\"");
    }
    if (entry.has("requested_bytes")) block.requested_bytes = entry.number("requested_bytes");
    if (follows_ == nullptr || follows_->address + follows_->bytes != block.address) {
      follows_ = &add_segment(block.address, "home");
    }
    add(*follows_, block);
  }

  void add_window_block(const JsonFields& entry) {
    StateBlock block = read_block(entry);
    const bool held = entry.has("held") && entry.flag("held");
    block.kind = held ? StateBlock::Kind::pending : StateBlock::Kind::live;
    block.requested_bytes = entry.number("requested_bytes");
    const bool fenced = entry.has("fenced") && entry.flag("fenced");
    StateSegment& segment = add_segment(block.address, fenced ? "fenced" : "window");
    segment.stream = block.stream;
    add(segment, block);
  }

  void add_freed(const JsonFields& entry) {
    FreedBlock freed;
    freed.device = device_;
    freed.fenced = entry.flag("fenced");
    freed.block.address = entry.number("address");
    freed.block.bytes = entry.number("bytes", kMostTraceBytes);
    freed.block.requested_bytes = entry.number("requested_bytes");
    freed.block.stream = entry.number("stream");
    freed.block.site = entry.text("call_site");
    freed.block.freed_s = entry.real("freed_s");
    budget_.hold(ReadBudget::allocated_text(freed.block.site.size()), "freed");
    budget_.make_room(state_.freed, 1, "freed");
    state_.freed.push_back(std::move(freed));
  }

  StateSegment& add_segment(std::uint64_t address, const char* pool) {
    budget_.make_room(state_.segments, 1, pool);
    StateSegment& segment = state_.segments.emplace_back();
    segment.device = device_;
    segment.address = address;
    segment.pool = pool;
    return segment;
  }
  void add(StateSegment& segment, const StateBlock& block) {
    budget_.make_room(segment.blocks, 1, segment.pool);
    segment.blocks.push_back(block);
    segment.bytes += block.bytes;
  }

  const std::string& text_;
  const std::string& name_;
  ReadBudget budget_;
  MemoryState state_;
  DeviceIndex device_ = 0;
  std::unordered_map<std::uint64_t, std::string> sites_;  // of the device's live blocks
  StateSegment* follows_ = nullptr;  // of the home, which the next block may go on with
  std::uint64_t total_bytes_ = 0;
};

}  // namespace

namespace {

// The blocks of a recording that were freed and lay at that address, in order.
void add_freed(const Trace& trace, std::uint64_t address, std::vector<FreedBlock>& freed) {
  std::unordered_map<std::uint32_t, const TraceEvent*> live;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::alloc) {
      if (event.address <= address && address - event.address < event.bytes) {
        live[event.block] = &event;
      }
    } else if (event.kind == EventKind::free) {
      const auto found = live.find(event.block);
      if (found == live.end()) continue;
      const TraceEvent& made = *found->second;
      FreedBlock block;
      block.device = trace.device;
      block.block.address = made.address;
      block.block.bytes = made.bytes;
      block.block.requested_bytes = made.bytes;
      block.block.stream = trace.streams[made.stream];
      block.block.site = trace.sites[made.site];
      if (const std::uint64_t end = trace.events.back().time_us; event.time_us != 0 && end != 0) {
        block.block.freed_s = static_cast<double>(end - std::min(end, event.time_us)) / 1e6;
      }
      freed.push_back(std::move(block));
      live.erase(found);
    }
  }
}

}  // namespace

MemoryState state_of(Snapshot snapshot, std::optional<std::uint64_t> freed_at) {
  MemoryState state;
  if (freed_at) {
    for (const Trace& trace : snapshot.traces) add_freed(trace, *freed_at, state.freed);
  }
  state.name = snapshot.name;
  state.source = "PyTorch snapshot";
  for (SnapshotSegment& source : snapshot.segments) {
    StateSegment segment;
    segment.device = source.device;
    segment.address = source.address;
    segment.bytes = source.bytes;
    segment.stream = source.stream;
    segment.expandable = source.expandable;
    segment.pool = source.type.empty() ? "unknown" : source.type;
    if (!source.pool.empty() && source.pool != "(0, 0)") segment.pool += " [" + source.pool + "]";
    for (SnapshotBlock& from : source.blocks) {
      StateBlock block;
      block.kind = from.allocated      ? StateBlock::Kind::live
                   : from.pending_free ? StateBlock::Kind::pending
                                       : StateBlock::Kind::free;
      block.address = from.address;
      block.bytes = from.bytes;
      block.requested_bytes = from.requested_bytes;
      block.stream = source.stream;
      block.site = std::move(from.site);
      segment.blocks.push_back(std::move(block));
    }
    source.blocks = {};
    state.segments.push_back(std::move(segment));
  }
  return state;
}

namespace {

StateBlock hole(const TraceSegment& segment, std::uint64_t stream, std::uint64_t from,
                std::uint64_t to) {
  StateBlock block;
  block.address = segment.address + from;
  block.bytes = to - from;
  block.stream = stream;
  return block;
}

StateSegment state_of(const Trace& trace, const TraceLayout::Segment& source) {
  const TraceSegment& range = source.range;
  StateSegment segment;
  segment.device = trace.device;
  segment.address = range.address;
  segment.bytes = range.bytes;
  segment.stream = trace.streams[range.stream];
  segment.pool = range.type.empty() ? "unknown" : range.type;
  if (range.pool != 0) segment.pool += " [" + trace.pools[range.pool] + "]";
  std::uint64_t at = 0;
  for (const TraceLayout::LiveBlock& from : source.blocks) {
    const std::uint64_t begin = from.address - range.address;
    if (begin > at) segment.blocks.push_back(hole(range, segment.stream, at, begin));
    StateBlock block;
    block.kind = from.pending ? StateBlock::Kind::pending : StateBlock::Kind::live;
    block.address = from.address;
    block.bytes = from.bytes;
    block.requested_bytes = from.requested_bytes;
    block.stream = segment.stream;
    block.site = trace.sites[from.site];
    segment.blocks.push_back(std::move(block));
    at = begin + from.bytes;
  }
  if (at < range.bytes) segment.blocks.push_back(hole(range, segment.stream, at, range.bytes));
  return segment;
}

}  // namespace

MemoryState state_of(const std::vector<Trace>& traces, std::optional<std::uint64_t> freed_at) {
  MemoryState state;
  for (const Trace& trace : traces) {
    const TraceLayout layout = lay_out(trace);
    if (state.name.empty()) {
      state.name = trace.name;
      state.source = trace.source;
      if (layout.segments_added) state.source += "; segments were not recorded";
    }
    if (freed_at && !layout.addresses_added) add_freed(trace, *freed_at, state.freed);
    for (const TraceLayout::Segment& segment : layout.segments) {
      state.segments.push_back(state_of(trace, segment));
    }
  }
  return state;
}

MemoryState read_dump(const std::string& text, const std::string& name) {
  return DumpReader(text, name).read();
}

MemoryState load_state(const std::string& path, std::optional<std::uint64_t> freed_at) {
  std::unique_ptr<ByteSource> source = open_bytes(path);
  const std::string_view first = first_bytes(*source);
  if (first.starts_with('{')) {
    MemoryState state = read_dump(source->take_all(), path);
    state.name = std::filesystem::path(path).stem().string();
    return state;
  }
  if (looks_like_pickle(first)) return state_of(snapshot_of(std::move(source), path), freed_at);
  return state_of(traces_of(std::move(source), path), freed_at);
}

}  // namespace gapless
