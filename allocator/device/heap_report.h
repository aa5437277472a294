// HeapReport: all of a device's memory at one moment, as dumps, snapshots and messages see it.
//
//   home      | live A | hole | lent | lent | live B |     by address; what is absent is left out
//   windows                   [  live C     ]              the blocks whose pages are lent
//   beside    what pools are owed, host memory that stands in, what checks found
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/check/memory_check.h"
#include "allocator/device/device_heap.h"
#include "allocator/device/pools.h"
#include "allocator/device/statistics.h"

namespace gapless {

/// A piece of the heap as reports see it.
struct BlockReport {
  /// held: freed, but pinned. lent: to a window.
  enum class Kind : std::uint8_t { live, hole, lent, held };
  Kind kind = Kind::hole;
  DeviceAddress address = 0;  // in the home
  std::uint64_t bytes = 0;
  std::uint64_t requested_bytes = 0;  // live
  StreamHandle stream = 0;            // live: allocated on; hole: freed on
  DeviceAddress given = 0;            // live: as the program knows it
  std::uint64_t free_page_bytes = 0;  // hole: of it in wholly free pages
  bool any_stream = false;            // hole: every stream may use it
  bool spilled = false;               // in host memory
  PoolId pool;                        // {0, 0}: no private pool
};

/// A live block in a window or behind a fence, or one that is held there.
struct WindowBlockReport {
  bool held = false;
  bool fenced = false;
  DeviceAddress address = 0;
  DeviceAddress given = 0;  // as the program knows it
  std::uint64_t bytes = 0;
  std::uint64_t requested_bytes = 0;
  StreamHandle stream = 0;
  PoolId pool;
};

/// Host memory that stands in for the device's (option spill).
struct SpillReport {
  bool possible = false;          // the device can map host memory
  std::uint64_t limit_bytes = 0;  // 0: none may
  std::uint64_t bytes = 0;
  std::uint64_t live_bytes = 0;  // of blocks
  std::uint64_t peak_bytes = 0;
  /// For how long there has been any.
  std::chrono::nanoseconds since{0};
};

/// What a private pool lent and has not had back (lenders.h): the device is left that much for it.
struct PoolDebt {
  PoolId pool;
  std::uint64_t bytes = 0;
};

/// All of a device's memory at one moment.
struct HeapReport {
  DeviceIndex device = 0;
  std::string device_name;
  std::uint64_t total_bytes = 0;
  std::uint64_t limit_bytes = 0;
  std::uint64_t page_bytes = 0;
  DeviceStatistics statistics;
  HeapCounters counters;
  std::vector<BlockReport> home;  // by address; absent memory is left out
  std::vector<WindowBlockReport> window_blocks;
  std::uint32_t windows = 0;
  std::uint64_t window_mapped_bytes = 0;
  WindowAddresses window_addresses;
  std::uint64_t free_page_bytes = 0;  // in wholly free pages
  SpillReport spill;
  std::vector<PoolDebt> owed_to_pools;
  /// Where checks are asked for: the live blocks they know, what was freed lately as far as they
  /// remember, and what they found.
  bool checks = false;
  std::vector<CheckedBlock> checked;
  std::vector<CheckedBlock> freed;
  std::vector<Mistake> mistakes;
};

}  // namespace gapless
