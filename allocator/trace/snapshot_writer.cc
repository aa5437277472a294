#include "allocator/trace/snapshot_writer.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "allocator/base/error.h"
#include "allocator/trace/going_back.h"
#include "allocator/trace/layout.h"
#include "allocator/trace/pickle_writer.h"

namespace gapless {
namespace {

// "(0, 1)" as its two numbers; nothing for a name that is no id of PyTorch's.
std::optional<std::pair<std::int64_t, std::int64_t>> pool_id(std::string_view name) {
  std::int64_t first = 0;
  std::int64_t second = 0;
  const char* const end = name.data() + name.size();
  if (!name.starts_with('(')) return {};
  const auto [comma, error] = std::from_chars(name.data() + 1, end, first);
  if (error != std::errc() || end - comma < 2 || comma[0] != ',' || comma[1] != ' ') return {};
  const auto [close, bad] = std::from_chars(comma + 2, end, second);
  if (bad != std::errc() || close + 1 != end || *close != ')') return {};
  return {{first, second}};
}

struct WrittenFrame {
  std::string_view file;
  std::uint64_t line = 0;
  std::string_view name;
};

// The parts that StackReader makes this text of again.
WrittenFrame frame_parts(std::string_view frame) {
  for (std::size_t at = frame.find(':'); at != frame.npos; at = frame.find(':', at + 1)) {
    const char* const digits = frame.data() + at + 1;
    const char* const end = frame.data() + frame.size();
    constexpr std::uint64_t kMostLine = 1U << 31;
    std::uint64_t line = 0;
    const auto [stop, error] = std::from_chars(digits, end, line);
    if (error != std::errc() || line > kMostLine || (*digits == '0' && stop != digits + 1))
      continue;
    if (stop == end && line != 0) return {frame.substr(0, at), line, {}};
    if (end - stop >= 2 && *stop == ' ') {
      return {frame.substr(0, at), line, {stop + 1, static_cast<std::size_t>(end - stop - 1)}};
    }
  }
  return {frame, 0, {}};
}

// Generated traces say a block's size where it is allocated only.
bool frees_have_sizes(const Trace& trace) {
  return std::any_of(trace.events.begin(), trace.events.end(), [](const TraceEvent& event) {
    return event.bytes != 0 &&
           (event.kind == EventKind::free || event.kind == EventKind::free_requested);
  });
}

class SnapshotWriter {
 public:
  WrittenSnapshot write(const std::vector<Trace>& traces) {
    std::vector<const Trace*> by_device;
    for (const Trace& trace : traces) {
      const auto device = static_cast<std::size_t>(trace.device);
      by_device.resize(std::max(by_device.size(), device + 1));
      if (by_device[device] != nullptr) {
        throw InputError(trace.name + ": two traces of device " + std::to_string(device) +
                         "; a snapshot holds one of each");
      }
      by_device[device] = &trace;
    }
    std::vector<TraceLayout> layouts;
    layouts.reserve(by_device.size());
    for (const Trace* trace : by_device) {
      layouts.push_back(trace == nullptr ? TraceLayout() : lay_out(*trace));
    }
    out_.begin_dict();
    key("segments");
    out_.begin_list();
    for (std::size_t i = 0; i < by_device.size(); ++i) {
      if (by_device[i] != nullptr) put_segments(*by_device[i], layouts[i]);
    }
    out_.end();
    key("device_traces");
    out_.begin_list();
    for (std::size_t i = 0; i < by_device.size(); ++i) {
      out_.begin_list();
      if (by_device[i] != nullptr) put_events(*by_device[i], layouts[i]);
      out_.end();
    }
    out_.end();
    put_added(by_device, layouts);
    out_.end();
    return {out_.take(), std::move(added_)};
  }

 private:
  void key(std::string_view name) { out_.shared_text(name); }
  void put(std::string_view name, std::uint64_t value) {
    key(name);
    out_.integer(value);
  }
  void put_text(std::string_view name, std::string_view value) {
    key(name);
    out_.shared_text(value);
  }

  // What is not the recording's own, so that a reader leaves it out.
  void put_added(const std::vector<const Trace*>& by_device,
                 const std::vector<TraceLayout>& layouts) {
    key(kAddedByGapless);
    out_.begin_list();
    for (std::size_t i = 0; i < by_device.size(); ++i) {
      const TraceLayout& layout = layouts[i];
      out_.begin_dict();
      key("segments");
      out_.flag(layout.segments_added);
      key("addresses");
      out_.flag(layout.addresses_added);
      key("sizes_of_frees");
      out_.flag(by_device[i] != nullptr && !frees_have_sizes(*by_device[i]));
      if (by_device[i] != nullptr) put_text("source", by_device[i]->source);
      if (by_device[i] != nullptr && layout.segments_added) {
        put("recorded_peak_reserved_bytes", by_device[i]->recorded_peak_reserved_bytes);
        key("starts_empty");
        out_.flag(by_device[i]->starts_empty);
        added_.push_back("gpu " + std::to_string(i) + ": " +
                         (layout.addresses_added ? "segments and addresses" : "segments"));
      }
      out_.end();
    }
    out_.end();
  }

  // Frames of a site: its stack, or its own text where no stack was recorded.
  void put_frames(const Trace& trace, std::uint32_t site) {
    key("frames");
    if (const auto known = stacks_.find(&trace.sites[site]); known != stacks_.end()) {
      out_.kept(known->second);
      return;
    }
    const std::vector<std::string_view> frames = trace.frames_of(site);
    out_.begin_list();
    for (const std::string_view frame : frames) put_frame(frame);
    if (frames.empty() && !trace.sites[site].empty()) put_frame(trace.sites[site]);
    out_.end();
    stacks_.emplace(&trace.sites[site], out_.keep());
  }
  void put_frame(std::string_view frame) {
    if (const auto known = frames_.find(std::string(frame)); known != frames_.end()) {
      out_.kept(known->second);
      return;
    }
    const WrittenFrame parts = frame_parts(frame);
    out_.begin_dict();
    put_text("filename", parts.file);
    put("line", parts.line);
    put_text("name", parts.name);
    out_.end();
    frames_.emplace(frame, out_.keep());
  }

  void put_pool(const Trace& trace, std::uint8_t pool, bool also_default) {
    const auto id = pool_id(trace.pools[pool]);
    if (!id && !also_default) return;
    key("segment_pool_id");
    id ? out_.pair(id->first, id->second) : out_.pair(0, 0);
  }

  void put_segments(const Trace& trace, const TraceLayout& layout) {
    for (const TraceLayout::Segment& segment : layout.segments) {
      std::uint64_t allocated = 0;
      std::uint64_t active = 0;
      std::uint64_t requested = 0;
      for (const TraceLayout::LiveBlock& block : segment.blocks) {
        active += block.bytes;
        allocated += block.pending ? 0 : block.bytes;
        requested += block.pending ? 0 : block.requested_bytes;
      }
      out_.begin_dict();
      put("device", static_cast<std::uint64_t>(trace.device));
      put("address", segment.range.address);
      put("total_size", segment.range.bytes);
      put("allocated_size", allocated);
      put("active_size", active);
      put("requested_size", requested);
      put("stream", trace.streams[segment.range.stream]);
      put_text("segment_type", segment.range.type);
      put_pool(trace, segment.range.pool, true);
      key("is_expandable");
      out_.flag(segment.range.expandable);
      put_frames(trace, 0);
      key("blocks");
      out_.begin_list();
      std::uint64_t at = segment.range.address;
      for (const TraceLayout::LiveBlock& block : segment.blocks) {
        if (block.address > at) put_hole(trace, at, block.address - at);
        put_block(trace, block);
        at = block.address + block.bytes;
      }
      const std::uint64_t end = segment.range.address + segment.range.bytes;
      if (at < end) put_hole(trace, at, end - at);
      out_.end();
      out_.end();
    }
  }
  void put_hole(const Trace& trace, std::uint64_t address, std::uint64_t bytes) {
    put_range(address, bytes, 0, "inactive");
    put_frames(trace, 0);
    out_.end();
  }
  void put_block(const Trace& trace, const TraceLayout::LiveBlock& block) {
    put_range(block.address, block.bytes, block.requested_bytes,
              block.pending ? "active_pending_free" : "active_allocated");
    put_frames(trace, block.site);
    out_.end();
  }
  void put_range(std::uint64_t address, std::uint64_t bytes, std::uint64_t requested,
                 std::string_view state) {
    out_.begin_dict();
    put("address", address);
    put("size", bytes);
    put("requested_size", requested);
    put_text("state", state);
  }

  // The pieces of each event that the viewer could not undo at once, by its place.
  static std::unordered_map<std::uint64_t, std::vector<GoingBack::Range>> pieces_of_maps(
      const Trace& trace, const TraceLayout& layout) {
    std::unordered_map<std::uint64_t, std::vector<GoingBack::Range>> pieces;
    GoingBack back;
    for (const TraceLayout::Segment& segment : layout.segments) {
      back.add({segment.range.address, segment.range.bytes}, segment.range.stream);
    }
    for (std::uint64_t i = trace.events.size(); i-- > trace.initial_events;) {
      const TraceEvent& event = trace.events[i];
      const GoingBack::Range range{event.address, event.bytes};
      if (event.kind == EventKind::segment_map || event.kind == EventKind::segment_alloc) {
        auto parts = back.undo_map(range);
        if (parts.size() > 1 && event.kind == EventKind::segment_map) pieces[i] = std::move(parts);
      } else if (event.kind == EventKind::segment_unmap) {
        back.undo_unmap(range, event.stream);
      } else if (event.kind == EventKind::segment_free) {
        back.add(range, event.stream);
      }
    }
    return pieces;
  }

  void put_events(const Trace& trace, const TraceLayout& layout) {
    const auto pieces = pieces_of_maps(trace, layout);
    auto added = layout.added.begin();
    const auto put_those = [&](std::uint64_t at, EventKind kind) {
      while (added != layout.added.end() && added->at == at && added->event.kind == kind) {
        put_event(trace, added->event, "", added->event.address, true);
        ++added;
      }
    };
    std::vector<bool> announced(trace.blocks);
    std::vector<std::uint64_t> bytes(trace.blocks);
    const bool add_sizes = !frees_have_sizes(trace);
    for (std::uint64_t i = 0; i < trace.events.size(); ++i) {
      TraceEvent event = trace.events[i];
      put_those(i, EventKind::segment_alloc);
      if (event.kind == EventKind::alloc) bytes[event.block] = event.bytes;
      if (i >= trace.initial_events) {
        const bool of_block = event.kind == EventKind::alloc || event.kind == EventKind::free ||
                              event.kind == EventKind::free_requested;
        const std::uint64_t address = of_block ? layout.address_of(event) : event.address;
        if (of_block && event.kind != EventKind::alloc && add_sizes)
          event.bytes = bytes[event.block];
        if (event.kind == EventKind::free_requested) announced[event.block] = true;
        if (event.kind == EventKind::free && !announced[event.block]) {
          put_event(trace, event, "free_requested", address, true);
        }
        if (const auto found = pieces.find(i); found != pieces.end()) {
          for (const GoingBack::Range& piece : found->second) {
            event.bytes = piece.bytes;
            put_event(trace, event, "", piece.address, false);
          }
        } else {
          put_event(trace, event, "", address, false);
        }
      }
      put_those(i, EventKind::segment_free);
    }
  }

  void put_event(const Trace& trace, const TraceEvent& event, std::string_view action,
                 std::uint64_t address, bool added) {
    if (action.empty()) {
      action = event.kind == EventKind::free     ? "free_completed"
               : event.kind == EventKind::marker ? "snapshot"
                                                 : to_string(event.kind);
    }
    out_.begin_dict();
    put_text("action", action);
    put(event.kind == EventKind::oom ? "device_free" : "addr", address);
    put("size", event.bytes);
    put("stream", trace.streams[event.stream]);
    put("time_us", event.time_us);
    put_pool(trace, event.pool, false);
    put_frames(trace, event.site);
    if (added) {
      key(kAddedByGapless);
      out_.flag(true);
    }
    out_.end();
  }

  PickleWriter out_;
  std::unordered_map<const void*, std::uint32_t> stacks_;  // by site of a trace
  std::unordered_map<std::string, std::uint32_t> frames_;
  std::vector<std::string> added_;
};

}  // namespace

WrittenSnapshot write_snapshot(const std::vector<Trace>& traces) {
  return SnapshotWriter().write(traces);
}

}  // namespace gapless
