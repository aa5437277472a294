#include "tools/view/page_data.h"

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/json_text.h"
#include "allocator/trace/segment_ranges.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

constexpr std::uint64_t kGrainBytes = 512;

class Columns {
 public:
  void byte(PageColumn column, std::uint8_t value) {
    at(column).push_back(static_cast<char>(value));
  }

  void number(PageColumn column, std::uint64_t value) {
    std::string& bytes = at(column);
    while (value >= 0x80) {
      bytes.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes.push_back(static_cast<char>(value));
  }

  // The difference from `last`, which becomes `value`.
  void difference(PageColumn column, std::uint64_t value, std::uint64_t& last) {
    const auto signed_value = static_cast<std::int64_t>(value - last);
    number(column, static_cast<std::uint64_t>(signed_value) << 1 ^
                       static_cast<std::uint64_t>(signed_value >> 63));
    last = value;
  }

  void clear(PageColumn column) { at(column).clear(); }

  // Both parts of a table.
  [[nodiscard]] std::string table(const std::string& about) const {
    std::size_t bytes = about.size() + 8;
    for (const std::string& column : columns_) bytes += column.size() + 4;
    std::string text;
    text.reserve(bytes);
    length(text, about.size());
    text += about;
    length(text, columns_.size());
    for (const std::string& column : columns_) {
      length(text, column.size());
      text += column;
    }
    return text;
  }

 private:
  static void length(std::string& text, std::size_t value) {
    for (int shift = 0; shift < 32; shift += 8) text.push_back(static_cast<char>(value >> shift));
  }
  std::string& at(PageColumn column) { return columns_[static_cast<std::size_t>(column)]; }

  std::array<std::string, static_cast<std::size_t>(PageColumn::count)> columns_;
};

// The stacks of one device's sites: of a recording's tree what they reach.
class ReachedStacks {
 public:
  explicit ReachedStacks(const Trace& trace) {
    if (trace.stacks == nullptr || trace.site_stacks.size() != trace.sites.size()) return;
    const CallStacks& stacks = *trace.stacks;
    std::vector<std::uint32_t> node_number(stacks.nodes.size(), 0);
    for (const std::uint32_t innermost : trace.site_stacks) {
      for (std::uint32_t node = innermost; node != 0 && node_number[node] == 0;
           node = stacks.nodes[node].parent) {
        node_number[node] = 1;
      }
    }
    std::vector<std::uint32_t> frame_number(stacks.frames.size(), 0);
    std::uint32_t nodes = 0;
    for (std::size_t node = 1; node < node_number.size(); ++node) {  // parents stand before
      if (node_number[node] == 0) continue;
      node_number[node] = ++nodes;
      const CallStacks::Node& from = stacks.nodes[node];
      if (frame_number[from.frame] == 0) {
        frames.push_back(stacks.frames[from.frame]);
        kinds.push_back(static_cast<char>('0' + static_cast<int>(frame_kind(frames.back()))));
        frame_number[from.frame] = static_cast<std::uint32_t>(frames.size());
      }
      tree.push_back({node_number[from.parent], frame_number[from.frame] - 1});
    }
    for (const std::uint32_t innermost : trace.site_stacks) {
      site_nodes.push_back(node_number[innermost]);
    }
  }

  std::vector<std::string> frames;
  std::string kinds;  // of each frame: its FrameKind as a digit
  std::vector<CallStacks::Node> tree;
  std::vector<std::uint32_t> site_nodes;
};

void add_stacks(const ReachedStacks& stacks, Columns& columns) {
  for (std::size_t i = 0; i < stacks.tree.size(); ++i) {
    columns.number(PageColumn::node_parents, i + 1 - stacks.tree[i].parent);
    columns.number(PageColumn::node_frames, stacks.tree[i].frame);
  }
  for (const std::uint32_t node : stacks.site_nodes) columns.number(PageColumn::site_nodes, node);
}

// The largest power of two that all addresses of blocks are multiples of.
std::uint64_t address_unit(const Trace& trace, std::uint64_t base) {
  std::uint64_t bits = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::alloc) bits |= event.address - base;
  }
  return std::uint64_t{1} << std::min(std::countr_zero(bits), 20);
}

void add_events(const Trace& trace, std::uint64_t base, std::uint64_t unit, Columns& columns) {
  std::vector<std::uint32_t> order(trace.blocks, 0);  // of each block: the how-manyth allocation
  std::uint32_t blocks = 0;
  std::uint64_t last_time = 0;
  std::uint64_t last_address = 0;
  std::uint64_t last_range = 0;
  bool timed = false;
  for (const TraceEvent& event : trace.events) {
    columns.byte(PageColumn::kinds, static_cast<std::uint8_t>(event.kind));
    timed = timed || event.time_us != 0;
    // What has no time of its own happened when the event before it did.
    columns.difference(PageColumn::times_us, event.time_us == 0 ? last_time : event.time_us,
                       last_time);
    switch (event.kind) {
      case EventKind::alloc:
        order[event.block] = blocks++;
        columns.number(PageColumn::sizes, event.bytes);
        columns.difference(PageColumn::addresses, (event.address - base) / unit, last_address);
        columns.number(PageColumn::sites, event.site);
        columns.number(PageColumn::streams, event.stream);
        columns.number(PageColumn::pools, event.pool);
        break;
      case EventKind::free_requested:
      case EventKind::free:
        columns.number(PageColumn::freed, blocks - 1 - order[event.block]);
        break;
      case EventKind::segment_alloc:
      case EventKind::segment_free:
      case EventKind::segment_map:
      case EventKind::segment_unmap:
        columns.number(PageColumn::range_sizes, event.bytes);
        columns.difference(PageColumn::range_addresses, event.address - base, last_range);
        columns.number(PageColumn::range_streams, event.stream);
        break;
      case EventKind::oom:
        columns.number(PageColumn::ooms, event.bytes);
        columns.number(PageColumn::ooms, event.address);
        columns.number(PageColumn::ooms, event.site);
        break;
      case EventKind::marker:
        break;
    }
  }
  if (!timed) columns.clear(PageColumn::times_us);
  if (trace.sites.size() < 2) columns.clear(PageColumn::sites);
  if (trace.streams.size() < 2) columns.clear(PageColumn::streams);
  if (trace.pools.size() < 2) columns.clear(PageColumn::pools);
}

json ranges_json(const std::vector<AddressRange>& ranges, std::uint64_t base) {
  json list = json::array();
  for (const AddressRange& range : ranges) list.push_back({range.address - base, range.bytes});
  return list;
}

json segments_json(const Trace& trace, std::uint64_t base) {
  json list = json::array();
  for (const TraceSegment& segment : trace.segments) {
    list.push_back({segment.address - base, segment.bytes, segment.stream, segment.pool,
                    segment.expandable ? 1 : 0});
  }
  return list;
}

}  // namespace

PageNumbers page_numbers(const Trace& trace) {
  PageNumbers numbers;
  numbers.events = trace.events.size();
  numbers.initial_events = trace.initial_events;
  std::vector<std::uint64_t> size(trace.blocks, 0);
  std::uint64_t requested = 0;
  std::uint64_t allocated = 0;
  const std::optional<std::uint64_t> start = reserved_at_start(trace);
  std::uint64_t reserved = start.value_or(0);
  numbers.peak_reserved_bytes = start;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind == EventKind::alloc) {
      size[event.block] = event.bytes;
      requested += event.bytes;
      allocated += align_up(event.bytes, kGrainBytes);
      ++numbers.blocks;
    } else if (event.kind == EventKind::free) {
      requested -= size[event.block];
      allocated -= align_up(size[event.block], kGrainBytes);
    } else if (event.kind == EventKind::oom) {
      ++numbers.ooms;
    }
    if (start) {
      const int sign = reserved_sign(event.kind);
      if (sign != 0) reserved = sign > 0 ? reserved + event.bytes : reserved - event.bytes;
      numbers.peak_reserved_bytes = std::max(*numbers.peak_reserved_bytes, reserved);
    }
    numbers.peak_requested_bytes = std::max(numbers.peak_requested_bytes, requested);
    if (allocated > numbers.peak_allocated_bytes) {
      numbers.peak_allocated_bytes = allocated;
      numbers.peak_allocated_event = i + 1 - std::min<std::uint64_t>(i + 1, trace.initial_events);
    }
  }
  return numbers;
}

std::string page_table(const Trace& trace, const PageNumbers& numbers) {
  const std::vector<AddressRange> ranges = ranges_of(trace);
  const std::uint64_t base = ranges.empty() ? 0 : ranges.front().address;
  const std::uint64_t unit = address_unit(trace, base);
  const std::optional<std::uint64_t> start = reserved_at_start(trace);
  const ReachedStacks stacks(trace);
  Columns columns;
  add_events(trace, base, unit, columns);
  add_stacks(stacks, columns);
  json streams = json::array();
  for (const std::uint64_t stream : trace.streams) {
    streams.push_back(stream == 0 ? "0 (default)" : fmt::format("{:#x}", stream));
  }
  json about = {{"name", trace.name},
                {"source", trace.source},
                {"device", trace.device},
                {"events", numbers.events},
                {"initial_events", numbers.initial_events},
                {"blocks", numbers.blocks},
                {"peak_requested_bytes", numbers.peak_requested_bytes},
                {"peak_allocated_bytes", numbers.peak_allocated_bytes},
                {"peak_allocated_event", numbers.peak_allocated_event},
                {"streams", streams},
                {"pools", trace.pools},
                {"sites", trace.sites},
                {"frames", stacks.frames},
                {"frame_kinds", stacks.kinds},
                {"base_address", fmt::format("{:#x}", base)},
                {"address_unit", unit},
                {"ranges", ranges_json(ranges, base)},
                {"segments", segments_json(trace, base)},
                {"segments_known_at_end", trace.has_segments},
                {"segments_known", trace.has_segments || (start && *start == 0)},
                {"warnings", trace.warnings}};
  about["reserved_at_start"] = start ? json(*start) : json();
  about["peak_reserved_bytes"] =
      numbers.peak_reserved_bytes ? json(*numbers.peak_reserved_bytes) : json();
  return columns.table(json_text(about));
}

}  // namespace gapless::tools
