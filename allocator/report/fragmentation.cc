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

std::vector<MemorySum> values(std::map<std::string, MemorySum>&& sums) {
  std::vector<MemorySum> list;
  for (auto& [name, sum] : sums) {
    sum.name = name;
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
  Fragmentation result;
  result.total.name = "total";
  std::map<std::string, MemorySum> pools;
  std::map<std::string, MemorySum> streams;
  std::map<std::uint64_t, HoleClass> holes;
  for (const StateSegment& segment : state.segments) {
    MemorySum sum;
    sum.name = "device " + std::to_string(segment.device) + " " + hex(segment.address) + " " +
               segment.pool;
    sum.segments = 1;
    ++result.total.segments;
    ++pools[segment.pool].segments;
    ++streams["stream " + hex(segment.stream)].segments;
    for (const StateBlock& block : segment.blocks) {
      add(result.total, block);
      add(pools[segment.pool], block);
      add(streams["stream " + hex(block.stream)], block);
      add(sum, block);
      if (block.kind == StateBlock::Kind::free) {
        if (block.bytes == 0) continue;
        HoleClass& size = holes[std::bit_floor(block.bytes)];
        ++size.holes;
        size.bytes += block.bytes;
      } else {
        result.biggest.push_back({block.address, block.bytes, block.requested_bytes, block.stream,
                                  segment.device, segment.pool, block.site});
      }
    }
    result.segments.push_back(std::move(sum));
  }
  std::stable_sort(
      result.segments.begin(), result.segments.end(),
      [](const MemorySum& a, const MemorySum& b) { return a.free_bytes > b.free_bytes; });
  result.pools = values(std::move(pools));
  result.streams = values(std::move(streams));
  for (auto& [from, size] : holes) {
    size.from_bytes = from;
    result.holes.push_back(size);
  }
  result.largest_request_bytes =
      std::max(result.total.largest_hole_bytes, state.joinable_free_bytes);
  std::stable_sort(result.biggest.begin(), result.biggest.end(),
                   [](const LiveBlock& a, const LiveBlock& b) { return a.bytes > b.bytes; });
  if (result.biggest.size() > most_blocks) result.biggest.resize(most_blocks);
  return result;
}

}  // namespace gapless
