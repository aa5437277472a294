#include "allocator/check/nvtx_memory.h"

#include <algorithm>
#include <iterator>

namespace gapless {
namespace {

// The first entry of a map from address to what has bytes there that ends behind `address`.
template <class Map>
auto first_behind(Map& map, DeviceAddress address) {
  auto found = map.upper_bound(address);
  if (found != map.begin()) {
    const auto before = std::prev(found);
    if (before->first + before->second.bytes > address) return before;
  }
  return found;
}

// What tools take for a name: the end of it, since that of a call site tells most.
std::string name_of(std::string_view text) {
  std::string name(text.substr(text.size() - std::min<std::size_t>(text.size(), nvtx::kMostName)));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

}  // namespace

template <class F>
void NvtxMemory::for_each_mapping(DeviceAddress address, std::uint64_t bytes, F&& f) {
  const auto end = mappings_.lower_bound(address + bytes);
  for (auto it = first_behind(mappings_, address); it != end; ++it) f(it->first, it->second);
}

template <class F>
void NvtxMemory::for_each_block(DeviceAddress address, std::uint64_t bytes, F&& f) {
  const auto end = blocks_.lower_bound(address + bytes);
  for (auto it = first_behind(blocks_, address); it != end; ++it) f(it->first, it->second);
}

// --- mappings ------------------------------------------------------------------------------------

void NvtxMemory::note_access(DeviceAddress address, std::uint64_t bytes) {
  for_each_mapping(address, bytes,
                   [](DeviceAddress, Mapping& mapping) { mapping.accessible = true; });
  show(address, bytes);
}

void NvtxMemory::show(DeviceAddress address, std::uint64_t bytes) {
  for_each_mapping(address, bytes, [&](DeviceAddress begin, Mapping& mapping) {
    if (!mapping.accessible || mapping.heap != nullptr) return;
    mapping.heap = nvtx::register_heap(begin, mapping.bytes);
    asked_ = true;
    if (mapping.heap == nullptr) return;
    heard_ = true;
    for_each_block(begin, mapping.bytes, [&](DeviceAddress from, const Block& block) {
      const DeviceAddress first = std::max(begin, from);
      const DeviceAddress last = std::min(begin + mapping.bytes, from + block.bytes);
      nvtx::register_region(mapping.heap, first, last - first,
                            block.name.empty() ? nullptr : block.name.c_str());
    });
  });
}

void NvtxMemory::hide(DeviceAddress address, std::uint64_t bytes) {
  for_each_mapping(address, bytes, [&](DeviceAddress begin, Mapping& mapping) {
    if (mapping.heap == nullptr) return;
    for_each_block(begin, mapping.bytes, [&](DeviceAddress from, const Block& /*block*/) {
      nvtx::unregister_region(std::max(begin, from));
    });
    nvtx::unregister_heap(std::exchange(mapping.heap, nullptr));
  });
}

void NvtxMemory::note_unmapped(DeviceAddress address, std::uint64_t bytes) {
  mappings_.erase(mappings_.lower_bound(address), mappings_.lower_bound(address + bytes));
  cut(address, bytes, false);
}

std::uint64_t NvtxMemory::mapped_bytes(DeviceAddress address) const {
  const auto found = mappings_.find(address);
  return found == mappings_.end() ? 0 : found->second.bytes;
}

// --- blocks --------------------------------------------------------------------------------------

NvtxMemory::Blocks::iterator NvtxMemory::add(DeviceAddress address, Block block) {
  const std::uint64_t bytes = block.bytes;
  if (block.kept) ++kept_[block.group];
  const auto added = blocks_.insert_or_assign(address, std::move(block)).first;
  const std::string& name = added->second.name;
  for_each_mapping(address, bytes, [&](DeviceAddress begin, const Mapping& mapping) {
    if (mapping.heap == nullptr) return;
    const DeviceAddress first = std::max(begin, address);
    const DeviceAddress last = std::min(begin + mapping.bytes, address + bytes);
    nvtx::register_region(mapping.heap, first, last - first, name.empty() ? nullptr : name.c_str());
  });
  return added;
}

NvtxMemory::Blocks::iterator NvtxMemory::erase(Blocks::iterator block) {
  const DeviceAddress address = block->first;
  for_each_mapping(address, block->second.bytes, [&](DeviceAddress begin, const Mapping& mapping) {
    if (mapping.heap != nullptr) nvtx::unregister_region(std::max(begin, address));
  });
  if (block->second.kept) --kept_[block->second.group];
  return blocks_.erase(block);
}

void NvtxMemory::cut(DeviceAddress address, std::uint64_t bytes, bool of_pools) {
  const DeviceAddress end = address + bytes;
  auto next = first_behind(blocks_, address);
  while (next != blocks_.end() && next->first < end) {
    const Group group = next->second.group;
    const bool of_pool = group != kWhileCapturing && group != kUntilUnmapped;
    if (!next->second.kept || (of_pool && !of_pools)) {
      ++next;
      continue;
    }
    const DeviceAddress from = next->first;
    const DeviceAddress to = from + next->second.bytes;
    Block rest = next->second;
    next = erase(next);
    if (from < address) {
      rest.bytes = address - from;
      add(from, rest);
    }
    if (to > end) {
      rest.bytes = to - end;
      next = add(end, std::move(rest));
    }
  }
}

void NvtxMemory::begin(DeviceAddress address, std::uint64_t bytes, std::string_view name) {
  cut(address, bytes, true);
  add(address, {bytes, false, 0, name_of(name)});
}

void NvtxMemory::end(DeviceAddress address) {
  if (const auto found = blocks_.find(address); found != blocks_.end()) erase(found);
}

void NvtxMemory::keep(DeviceAddress address, Group group) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  ++kept_[group];
  found->second.kept = true;
  found->second.group = group;
}

void NvtxMemory::forget(Group group) {
  for (auto next = blocks_.begin(); kept_[group] != 0 && next != blocks_.end();) {
    const bool goes = next->second.kept && next->second.group == group;
    next = goes ? erase(next) : std::next(next);
  }
}

void NvtxMemory::move(Group from, Group to) {
  for (auto& [address, block] : blocks_) {
    if (block.kept && block.group == from) block.group = to;
  }
  kept_[to] += std::exchange(kept_[from], 0);
}

NvtxMemory::Opened NvtxMemory::open(DeviceAddress address, std::uint64_t bytes) {
  const DeviceAddress end = address + bytes;
  std::vector<std::pair<DeviceAddress, std::uint64_t>> gaps;
  DeviceAddress at = address;
  for_each_block(address, bytes, [&](DeviceAddress from, const Block& block) {
    if (from > at) gaps.emplace_back(at, from - at);
    at = std::max(at, from + block.bytes);
  });
  if (at < end) gaps.emplace_back(at, end - at);
  std::vector<DeviceAddress> opened;
  opened.reserve(gaps.size());
  for (const auto& [from, size] : gaps) opened.push_back(add(from, {size, false, 0, {}})->first);
  return {*this, std::move(opened)};
}

}  // namespace gapless
