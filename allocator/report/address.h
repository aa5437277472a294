// What is, or was, at an address: for a pointer in a kernel's error, a fault that the driver's log
// names (`dmesg`, Xid 31), or what a check found.
//
//   0x7f..0400   [ 1,000 B of a block, then its rounding ][ free ... ][ block ]
//                  ^ in a live block, at byte 12
//                                    ^ behind its request, by 4 bytes
//                                                           ^ in free memory, 2.1 MiB behind it
//                and before: in a block of 4 MiB that was freed 0.2 s before
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/report/memory_state.h"

namespace gapless {

/// A block near an address, and how the address lies to it.
struct NearBlock {
  StateBlock block;
  /// From the block's begin, as the program knows it; negative before it.
  std::int64_t offset = 0;

  /// By how much the address is behind the last byte that was asked for; 0: in it, or before it.
  [[nodiscard]] std::uint64_t behind_bytes() const;
};

struct AddressReport {
  std::uint64_t address = 0;
  DeviceIndex device = -1;  // whose memory; -1: nothing of the recording is there or near
  std::string segment;      // the segment's pool ("home", "window", "fenced", "large", ...), if any
  std::optional<NearBlock> block;   // that holds it: live, pending or free
  std::optional<NearBlock> before;  // the nearest live one before, up to 1 GiB away
  std::optional<NearBlock> after;   // and behind
  /// Freed blocks that held it, or ended less than a page before it: the one freed last first, at
  /// most kMostFreed.
  std::vector<NearBlock> freed;

  static constexpr std::size_t kMostFreed = 5;
};

AddressReport report_address(const MemoryState& state, std::uint64_t address);

/// Sentences, each with its full stop, one to a line.
std::string to_text(const AddressReport& report);

}  // namespace gapless
