#include "allocator/report/memory_state.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"

namespace gapless {
namespace {

using nlohmann::json;

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
