#include "allocator/report/fragmentation.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <map>

namespace gapless {
namespace {

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

void add(MemorySum& sum, const StateBlock& block) {
  sum.reserved_bytes += block.bytes;
  if (block.kind == StateBlock::Kind::free) {
    sum.free_bytes += block.bytes;
    ++sum.holes;
    sum.largest_hole_bytes = std::max(sum.largest_hole_bytes, block.bytes);
    return;
  }
  sum.active_bytes += block.bytes;
  if (block.kind == StateBlock::Kind::live) {
    sum.allocated_bytes += block.bytes;
    sum.requested_bytes += std::min(block.requested_bytes, block.bytes);
    ++sum.live_blocks;
  }
}

// The sums, the most reserved first; `name_of` tells what a key is called.
template <class Key, class NameOf>
std::vector<MemorySum> values(std::map<Key, MemorySum>& sums, const NameOf& name_of) {
  std::vector<MemorySum> list;
  for (auto& [key, sum] : sums) {
    sum.name = name_of(key);
    list.push_back(std::move(sum));
  }
  std::stable_sort(list.begin(), list.end(), [](const MemorySum& a, const MemorySum& b) {
    return a.reserved_bytes > b.reserved_bytes;
  });
  return list;
}

}  // namespace

double MemorySum::external() const {
  if (free_bytes == 0) return 0;
  return 1 - static_cast<double>(largest_hole_bytes) / static_cast<double>(free_bytes);
}

Fragmentation analyze(const MemoryState& state, std::size_t most_blocks) {
  struct Taken {
    const StateSegment* segment;
    const StateBlock* block;
  };
  Fragmentation result;
  result.total.name = "total";
  std::map<std::string, MemorySum> pools;
  std::map<std::uint64_t, MemorySum> streams;
  std::map<std::uint64_t, HoleClass> holes;
  std::vector<Taken> taken;
  for (const StateSegment& segment : state.segments) {
    MemorySum sum;
    sum.name = "device " + std::to_string(segment.device) + " " + hex(segment.address) + " " +
               segment.pool;
    MemorySum& pool = pools[segment.pool];
    sum.segments = 1;
    ++result.total.segments;
    ++pool.segments;
    ++streams[segment.stream].segments;
    for (const StateBlock& block : segment.blocks) {
      add(result.total, block);
      add(pool, block);
      add(streams[block.stream], block);
      add(sum, block);
      if (block.kind == StateBlock::Kind::free) {
        if (block.bytes == 0) continue;
        HoleClass& size = holes[std::bit_floor(block.bytes)];
        ++size.holes;
        size.bytes += block.bytes;
      } else {
        taken.push_back({&segment, &block});
      }
    }
    result.segments.push_back(std::move(sum));
  }
  std::stable_sort(
      result.segments.begin(), result.segments.end(),
      [](const MemorySum& a, const MemorySum& b) { return a.free_bytes > b.free_bytes; });
  result.pools = values(pools, [](const std::string& name) { return name; });
  result.streams = values(streams, [](std::uint64_t id) { return "stream " + hex(id); });
  for (auto& [from, size] : holes) {
    size.from_bytes = from;
    result.holes.push_back(size);
  }
  result.largest_request_bytes =
      std::max(result.total.largest_hole_bytes, state.joinable_free_bytes);
  std::stable_sort(taken.begin(), taken.end(),
                   [](const Taken& a, const Taken& b) { return a.block->bytes > b.block->bytes; });
  if (taken.size() > most_blocks) taken.resize(most_blocks);
  for (const auto& [segment, block] : taken) {
    result.biggest.push_back({block->address, block->bytes, block->requested_bytes, block->stream,
                              segment->device, segment->pool, block->site});
  }
  return result;
}

}  // namespace gapless
