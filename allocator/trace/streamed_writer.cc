#include "allocator/trace/streamed_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "allocator/base/json_text.h"
#include "allocator/trace/zstd_frame.h"

namespace gapless {
namespace {

using nlohmann::json;

constexpr std::size_t kFrameEvents = 65536;
// Of zstd: the program's own threads want the processor.
constexpr int kLevel = 3;

static_assert(std::endian::native == std::endian::little, "records are written as they lie");

template <class Value>
json pairs_of(const std::vector<std::pair<std::size_t, Value>>& list) {
  json pairs = json::array();
  for (const auto& [trace, value] : list) pairs.push_back({trace, value});
  return pairs;
}

}  // namespace

void StreamedWriter::begin(const std::vector<StreamedDevice>& devices,
                           const std::vector<std::vector<StreamedEvent>>& initial) {
  sink_(kStreamedMagic);
  json list = json::array();
  traces_.resize(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    traces_[i].streams.emplace(0, 0);
    json mapped = json::array();
    for (const TraceSegment& segment : devices[i].mapped) {
      mapped.push_back(segment.address);
      mapped.push_back(segment.bytes);
    }
    list.push_back({{"name", devices[i].name},
                    {"source", devices[i].source},
                    {"device", devices[i].device},
                    {"initial_events", initial[i].size()},
                    {"mapped", std::move(mapped)}});
  }
  write_frame(StreamedFrame::names, 0, json_text(json{{"devices", list}}));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (const StreamedEvent& one : initial[i]) event(i, one);
  }
  flush();
}

std::uint16_t StreamedWriter::stream_index(std::size_t trace, std::uint64_t handle) {
  auto& known = traces_[trace].streams;
  if (const auto found = known.find(handle); found != known.end()) return found->second;
  if (known.size() >= kMostStreams) return 0;
  const auto index = static_cast<std::uint16_t>(known.size());
  known.emplace(handle, index);
  new_streams_.emplace_back(trace, handle);
  return index;
}

std::uint8_t StreamedWriter::pool_index(std::size_t trace, const StreamedEvent& event) {
  const std::uint64_t id = std::uint64_t{event.pool_creator} << 32 | event.pool_number;
  if (id == 0) return 0;
  auto& known = traces_[trace].pools;
  if (const auto found = known.find(id); found != known.end()) return found->second;
  // A program that goes on making pools: all later ones are one.
  constexpr std::size_t kLast = kMostPools - 1;
  const auto index = static_cast<std::uint8_t>(std::min(known.size() + 1, kLast));
  if (known.size() >= kLast) return index;
  known.emplace(id, index);
  new_pools_.emplace_back(trace, index == kLast ? "others"
                                                : "(" + std::to_string(event.pool_creator) + ", " +
                                                      std::to_string(event.pool_number) + ")");
  return index;
}

std::uint32_t StreamedWriter::site_index(std::uint32_t stack) {
  if (stack == 0) return 0;
  const auto [at, fresh] = sites_.emplace(stack, static_cast<std::uint32_t>(sites_.size() + 1));
  if (fresh) new_sites_.push_back(stack);
  return at->second;
}

void StreamedWriter::event(std::size_t trace, const StreamedEvent& event) {
  OfTrace& of = traces_[trace];
  TraceEvent made;
  made.kind = event.kind;
  made.bytes = event.bytes;
  made.address = event.address;
  made.time_us = event.time_us;
  made.stream = stream_index(trace, event.stream);
  made.pool = pool_index(trace, event);
  made.site = site_index(event.stack);
  const auto at = of.live.find(event.address);
  switch (event.kind) {
    case EventKind::alloc:
      if (at != of.live.end()) free(trace, at, made);  // its free was lost
      alloc(trace, event, made);
      return;
    case EventKind::free:
      if (at != of.live.end()) free(trace, at, made);
      return;
    case EventKind::free_requested:
      if (at == of.live.end()) return;
      made.block = at->second.block;
      break;
    default:
      break;
  }
  push(trace, made);
}

void StreamedWriter::alloc(std::size_t trace, const StreamedEvent& event, TraceEvent& made) {
  OfTrace& of = traces_[trace];
  made.block = of.blocks++;
  of.live.emplace(event.address,
                  Live{made.block, made.stream, made.pool, event.stack, event.bytes});
  if (event.stack != 0) live_by_stack_[event.stack] += event.bytes;
  push(trace, made);
}

void StreamedWriter::free(std::size_t trace, std::unordered_map<std::uint64_t, Live>::iterator at,
                          TraceEvent made) {
  const Live& live = at->second;
  made.kind = EventKind::free;
  made.block = live.block;
  made.bytes = live.bytes;
  made.stream = live.stream;
  made.pool = live.pool;
  if (live.stack != 0) live_by_stack_[live.stack] -= live.bytes;
  push(trace, made);
  traces_[trace].live.erase(at);
}

void StreamedWriter::push(std::size_t trace, const TraceEvent& event) {
  traces_[trace].waiting.push_back(event);
  ++events_;
}

void StreamedWriter::lost(std::size_t trace, std::uint64_t events) {
  new_lost_.emplace_back(trace, events);
}

void StreamedWriter::add_stacks(const std::vector<std::string>& frames,
                                const std::vector<CallStacks::Node>& nodes) {
  new_frames_.insert(new_frames_.end(), frames.begin(), frames.end());
  new_nodes_.insert(new_nodes_.end(), nodes.begin(), nodes.end());
}

void StreamedWriter::write_frame(StreamedFrame kind, std::uint32_t trace, std::string_view raw) {
  const std::string packed = zstd_frame(raw, kLevel);
  const StreamedFrameHeader header{kind, trace, packed.size()};
  static_assert(sizeof header == 16);
  std::string whole(sizeof header, '\0');
  std::memcpy(whole.data(), &header, sizeof header);
  sink_(whole + packed);
}

void StreamedWriter::write_names() {
  if (new_streams_.empty() && new_pools_.empty() && new_lost_.empty() && new_frames_.empty() &&
      new_nodes_.empty() && new_sites_.empty()) {
    return;
  }
  json nodes = json::array();  // parent and frame in turn
  for (const CallStacks::Node& node : new_nodes_) {
    nodes.push_back(node.parent);
    nodes.push_back(node.frame);
  }
  write_frame(StreamedFrame::names, 0,
              json_text(json{{"streams", pairs_of(new_streams_)},
                             {"pools", pairs_of(new_pools_)},
                             {"lost", pairs_of(new_lost_)},
                             {"frames", new_frames_},
                             {"stacks", nodes},
                             {"sites", new_sites_}}));
  new_streams_.clear();
  new_pools_.clear();
  new_lost_.clear();
  new_frames_.clear();
  new_nodes_.clear();
  new_sites_.clear();
}

void StreamedWriter::write_events(std::size_t trace) {
  std::vector<TraceEvent>& waiting = traces_[trace].waiting;
  for (std::size_t first = 0; first < waiting.size(); first += kFrameEvents) {
    const std::size_t count = std::min(kFrameEvents, waiting.size() - first);
    const std::string_view raw(reinterpret_cast<const char*>(waiting.data() + first),
                               count * sizeof(TraceEvent));
    write_frame(StreamedFrame::events, static_cast<std::uint32_t>(trace), raw);
  }
  waiting.clear();
}

void StreamedWriter::write_full() {
  for (std::size_t i = 0; i < traces_.size(); ++i) {
    if (traces_[i].waiting.size() < kFrameEvents) continue;
    write_names();
    write_events(i);
  }
}

void StreamedWriter::flush() {
  write_names();
  for (std::size_t i = 0; i < traces_.size(); ++i) write_events(i);
}

void StreamedWriter::end() {
  flush();
  write_frame(StreamedFrame::end, 0, "{}");
}

}  // namespace gapless
