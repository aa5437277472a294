// Fragmentation: what a MemoryState means, in figures.
//
//   reserved   = live + pending + free
//   internal   = live - requested                  lost to rounding
//   external   = 1 - largest hole / free           0: one hole; near 1: crumbs
//   unusable   = free that a request of a given size cannot use, since no hole is that large
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/report/memory_state.h"

namespace gapless {

/// Sums over a part of the memory.
struct MemorySum {
  std::string name;  // of the pool, stream or segment
  std::uint64_t segments = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t active_bytes = 0;  // live and pending
  std::uint64_t allocated_bytes = 0;
  std::uint64_t requested_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t holes = 0;
  std::uint64_t largest_hole_bytes = 0;
  std::uint64_t live_blocks = 0;

  [[nodiscard]] std::uint64_t internal_bytes() const { return allocated_bytes - requested_bytes; }
  /// 0 to 1; 0 where nothing is free.
  [[nodiscard]] double external() const;
};

struct HoleClass {
  std::uint64_t from_bytes = 0;  // a power of two; up to twice that
  std::uint64_t holes = 0;
  std::uint64_t bytes = 0;
};

struct LiveBlock {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t requested_bytes = 0;
  std::uint64_t stream = 0;
  DeviceIndex device = 0;
  std::string pool;
  std::string site;
};

struct Fragmentation {
  MemorySum total;
  std::vector<MemorySum> pools;
  std::vector<MemorySum> streams;
  std::vector<MemorySum> segments;  // the most free memory first
  std::vector<HoleClass> holes;     // by size, ascending, empty classes left out
  /// The largest request that would succeed without new memory from the driver.
  std::uint64_t largest_request_bytes = 0;
  std::vector<LiveBlock> biggest;  // the largest first
};

/// `most_blocks`: how many of the biggest live blocks to tell.
Fragmentation analyze(const MemoryState& state, std::size_t most_blocks = 10);

}  // namespace gapless
