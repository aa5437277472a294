#include "allocator/report/memory_state.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"

namespace gapless {
namespace {

using nlohmann::json;

json to_json(const Stat& stat) {
  return {{"current", stat.current},
          {"peak", stat.peak},
          {"allocated", stat.allocated},
          {"freed", stat.freed}};
}

json to_json(const PoolStat& stat) {
  return {{"all", to_json(stat.all)},
          {"small_pool", to_json(stat.small_pool)},
          {"large_pool", to_json(stat.large_pool)}};
}

json to_json(const DeviceStatistics& statistics) {
  return {{"allocation", to_json(statistics.allocation)},
          {"segment", to_json(statistics.segment)},
          {"active", to_json(statistics.active)},
          {"inactive_split", to_json(statistics.inactive_split)},
          {"allocated_bytes", to_json(statistics.allocated_bytes)},
          {"reserved_bytes", to_json(statistics.reserved_bytes)},
          {"active_bytes", to_json(statistics.active_bytes)},
          {"inactive_split_bytes", to_json(statistics.inactive_split_bytes)},
          {"requested_bytes", to_json(statistics.requested_bytes)},
          {"num_alloc_retries", statistics.num_alloc_retries},
          {"num_ooms", statistics.num_ooms},
          {"num_sync_all_streams", statistics.num_sync_all_streams},
          {"num_device_alloc", statistics.num_device_alloc},
          {"num_device_free", statistics.num_device_free}};
}

const char* name_of(BlockReport::Kind kind) {
  switch (kind) {
    case BlockReport::Kind::live:
      return "live";
    case BlockReport::Kind::hole:
      return "hole";
    case BlockReport::Kind::lent:
      return "lent";
    case BlockReport::Kind::held:
      return "held";
  }
  return "?";
}

json to_json(const HeapReport& report) {
  json home = json::array();
  for (const BlockReport& block : report.home) {
    json entry = {{"kind", name_of(block.kind)},
                  {"address", block.address},
                  {"bytes", block.bytes},
                  {"stream", block.stream},
                  {"pool", {block.pool.first, block.pool.second}},
                  {"on_host", block.spilled}};
    if (block.kind == BlockReport::Kind::live) entry["requested_bytes"] = block.requested_bytes;
    home.push_back(std::move(entry));
  }
  json window_blocks = json::array();
  for (const WindowBlockReport& block : report.window_blocks) {
    window_blocks.push_back({{"address", block.address},
                             {"bytes", block.bytes},
                             {"requested_bytes", block.requested_bytes},
                             {"stream", block.stream},
                             {"pool", {block.pool.first, block.pool.second}},
                             {"held", block.held}});
  }
  return {{"device", report.device},
          {"device_name", report.device_name},
          {"total_bytes", report.total_bytes},
          {"limit_bytes", report.limit_bytes},
          {"page_bytes", report.page_bytes},
          {"statistics", to_json(report.statistics)},
          {"home", std::move(home)},
          {"window_blocks", std::move(window_blocks)},
          {"windows", report.windows},
          {"window_mapped_bytes", report.window_mapped_bytes},
          {"free_page_bytes", report.free_page_bytes},
          {"spilled_bytes", report.spill.bytes}};
}

StateBlock::Kind kind_of(const std::string& name, const std::string& file) {
  if (name == "live") return StateBlock::Kind::live;
  if (name == "hole") return StateBlock::Kind::free;
  if (name == "held") return StateBlock::Kind::pending;
  throw InputError(file, "home", "unknown kind of block \"" + name + "\"");
}

// Home blocks, cut into segments where addresses do not follow one another. Memory lent to windows
// is told with the window's blocks, so it is left out here.
void add_home(const json& device, MemoryState& state) {
  const auto index = device.at("device").get<DeviceIndex>();
  bool fresh = true;
  for (const json& entry : device.at("home")) {
    const auto kind = entry.at("kind").get<std::string>();
    const auto address = entry.at("address").get<std::uint64_t>();
    const auto bytes = entry.at("bytes").get<std::uint64_t>();
    if (kind == "lent") {
      fresh = true;
      continue;
    }
    if (!fresh) {
      const StateSegment& last = state.segments.back();
      fresh = last.address + last.bytes != address;
    }
    if (fresh) {
      StateSegment segment;
      segment.device = index;
      segment.address = address;
      segment.pool = "home";
      state.segments.push_back(std::move(segment));
      fresh = false;
    }
    StateBlock block;
    block.kind = kind_of(kind, state.name);
    block.address = address;
    block.bytes = bytes;
    block.requested_bytes = entry.value("requested_bytes", std::uint64_t{0});
    block.stream = entry.at("stream").get<std::uint64_t>();
    state.segments.back().bytes += bytes;
    state.segments.back().blocks.push_back(block);
  }
  for (const json& entry : device.at("window_blocks")) {
    StateSegment segment;
    segment.device = index;
    segment.pool = "window";
    StateBlock block;
    block.kind = entry.value("held", false) ? StateBlock::Kind::pending : StateBlock::Kind::live;
    entry.at("address").get_to(block.address);
    entry.at("bytes").get_to(block.bytes);
    entry.at("requested_bytes").get_to(block.requested_bytes);
    entry.at("stream").get_to(block.stream);
    segment.address = block.address;
    segment.bytes = block.bytes;
    segment.stream = block.stream;
    segment.blocks.push_back(block);
    state.segments.push_back(std::move(segment));
  }
}

}  // namespace

MemoryState state_of(const Snapshot& snapshot) {
  MemoryState state;
  state.name = snapshot.name;
  state.source = "PyTorch snapshot";
  for (const SnapshotSegment& source : snapshot.segments) {
    StateSegment segment;
    segment.device = source.device;
    segment.address = source.address;
    segment.bytes = source.bytes;
    segment.stream = source.stream;
    segment.pool = source.type.empty() ? "unknown" : source.type;
    if (!source.pool.empty() && source.pool != "(0, 0)") segment.pool += " [" + source.pool + "]";
    for (const SnapshotBlock& from : source.blocks) {
      StateBlock block;
      block.kind = from.allocated      ? StateBlock::Kind::live
                   : from.pending_free ? StateBlock::Kind::pending
                                       : StateBlock::Kind::free;
      block.address = from.address;
      block.bytes = from.bytes;
      block.requested_bytes = from.requested_bytes;
      block.stream = source.stream;
      block.site = from.site;
      segment.blocks.push_back(std::move(block));
    }
    state.segments.push_back(std::move(segment));
  }
  return state;
}

std::string write_dump(const std::vector<HeapReport>& reports) {
  json devices = json::array();
  for (const HeapReport& report : reports) devices.push_back(to_json(report));
  return json{{"gapless_dump", 1}, {"devices", std::move(devices)}}.dump(1);
}

MemoryState read_dump(const std::string& text, const std::string& name) {
  MemoryState state;
  state.name = name;
  state.source = "gapless dump";
  try {
    const json document = json::parse(text);
    if (!document.is_object() || !document.contains("gapless_dump")) {
      throw InputError(name, "top level", "not a gapless dump (\"gapless_dump\" is missing)");
    }
    if (document.at("gapless_dump") != 1) {
      throw InputError(
          name, "top level",
          "dump format " + document.at("gapless_dump").dump() + "; this version reads format 1");
    }
    for (const json& device : document.at("devices")) {
      add_home(device, state);
      state.joinable_free_bytes += device.at("free_page_bytes").get<std::uint64_t>();
      device.at("page_bytes").get_to(state.page_bytes);
      state.windows += device.at("windows").get<std::uint32_t>();
    }
  } catch (const json::exception& error) {
    throw InputError(name, "", error.what());
  }
  return state;
}

MemoryState load_state(const std::string& path) {
  std::string bytes = read_file(path);
  const std::string name = std::filesystem::path(path).stem().string();
  if (looks_like_compact(bytes)) {
    throw InputError(path +
                     ": is a trace, which has events but no state; replay it (gapless replay)");
  }
  if (!bytes.empty() && bytes.front() == '{') {
    MemoryState state = read_dump(bytes, path);
    state.name = name;
    return state;
  }
  return state_of(load_snapshot(path));
}

}  // namespace gapless
