#include "tools/inspect/groups.h"

#include <algorithm>
#include <bit>
#include <map>

#include <fmt/format.h>

#include "allocator/base/bytes.h"

namespace gapless::tools {
namespace {

// "model.py" of "/home/x/model.py:41 forward"; a C++ function is its own module.
std::string module_of(const std::string& site) {
  std::size_t end = site.find(".py:");
  if (end == std::string::npos) return site;
  end += 3;
  const std::size_t begin = site.find_last_of("/\\", end);
  return site.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin + 1));
}

std::string size_class(std::uint64_t bytes) {
  if (bytes <= 512) return "up to 512 B";
  const std::uint64_t from = std::bit_floor(bytes - 1);
  return format_bytes(from) + " to " + format_bytes(2 * from);
}

// What the call sites' lines called, and the line of a library that they led to, by site.
class Stacks {
 public:
  struct Told {
    std::string called;
    std::string library;
  };
  explicit Stacks(const Trace* trace) : trace_(trace) {}
  const Told& of(std::uint32_t site) {
    const auto known = texts_.find(site);
    if (known != texts_.end()) return known->second;
    const auto frames = trace_->frames_of(site);
    return texts_.emplace(site, Told{called_there(frames), library_line(frames)}).first->second;
  }

 private:
  const Trace* trace_;
  std::map<std::uint32_t, Told> texts_;
};

struct Gathered {
  BlockGroup group;
  std::map<std::string, std::uint64_t> called;
  std::map<std::string, std::uint64_t> kinds;
};

// What has the most bytes.
std::string most_of(const std::map<std::string, std::uint64_t>& parts) {
  const auto most = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == parts.end() ? "" : most->first;
}

}  // namespace

const std::vector<std::string>& group_names() {
  static const std::vector<std::string> names = {"site", "line",    "module", "size",    "stream",
                                                 "pool", "segment", "kind",   "lifetime"};
  return names;
}

GroupBy group_by(std::string_view name) {
  const auto& names = group_names();
  return static_cast<GroupBy>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::vector<BlockGroup> group_blocks(const MemoryState& state, GroupBy by, const Trace* trace,
                                     const MemoryKinds* kinds, const Lifetimes* lifetimes) {
  std::map<std::string, Gathered> groups;
  // The allocation of each block, for its call site's stack.
  std::vector<std::uint32_t> sites;
  if (trace != nullptr) {
    sites.resize(trace->blocks, 0);
    for (const TraceEvent& event : trace->events) {
      if (event.kind == EventKind::alloc) sites[event.block] = event.site;
    }
  }
  Stacks stacks(trace);
  for (const StateSegment& segment : state.segments) {
    for (const StateBlock& block : segment.blocks) {
      if (block.kind == StateBlock::Kind::free) continue;
      const bool known = trace != nullptr && block.number < sites.size();
      const std::string kind =
          kinds != nullptr && known ? kinds->names[kinds->of_block[block.number]] : "";
      std::string name;
      const bool by_line = by == GroupBy::site || by == GroupBy::line || by == GroupBy::module;
      const Stacks::Told told = by_line && known ? stacks.of(sites[block.number]) : Stacks::Told{};
      switch (by) {
        case GroupBy::site:
          name = block.site + (told.library.empty() ? "" : ", in " + told.library);
          break;
        case GroupBy::line:
          name = block.site;
          break;
        case GroupBy::module:
          name = told.library.empty() ? module_of(block.site)
                                      : told.library.substr(0, told.library.rfind(':'));
          break;
        case GroupBy::size:
          name = size_class(block.bytes);
          break;
        case GroupBy::stream:
          name = fmt::format("stream {:#x}", block.stream);
          break;
        case GroupBy::pool:
          name = segment.pool;
          break;
        case GroupBy::segment:
          name = fmt::format("device {} {:#x} {}", segment.device, segment.address, segment.pool);
          break;
        case GroupBy::kind:
          name = kind;
          break;
        case GroupBy::lifetime:
          if (lifetimes != nullptr && known) {
            name = lifetimes->names[lifetimes->of_block[block.number]];
          }
          break;
      }
      Gathered& gathered = groups[name];
      gathered.group.bytes += block.bytes;
      gathered.group.requested_bytes += std::min(block.bytes, block.requested_bytes);
      ++gathered.group.blocks;
      if (!kind.empty()) gathered.kinds[kind] += block.bytes;
      if (by != GroupBy::module && !told.called.empty())
        gathered.called[told.called] += block.bytes;
    }
  }
  std::vector<BlockGroup> list;
  for (auto& [name, gathered] : groups) {
    gathered.group.name = name;
    gathered.group.kind = most_of(gathered.kinds);
    gathered.group.called = most_of(gathered.called);
    list.push_back(std::move(gathered.group));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const BlockGroup& a, const BlockGroup& b) { return a.bytes > b.bytes; });
  return list;
}

}  // namespace gapless::tools
