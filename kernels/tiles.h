// A range of memory as the kernels of integrity.h take it: in tiles of 16 KiB, aligned in memory, a
// block a tile, and a thread's share of it in four pieces of 16 bytes.
//
//   range                 [begin .................................................... end)
//   tiles        |  tile 0, in part  |  tile 1, whole    |  tile 2       |  tile 3, in part  |
//   of thread t  |   t * 16, (256 + t) * 16, (512 + t) * 16, (768 + t) * 16 behind a tile's begin
//
// In a whole tile no piece has to be compared with the range's ends. All is in 64 bits, for ranges
// of any size.
#pragma once

#include <cstdint>

#include "kernels/pattern.h"

namespace gapless::kernels {

struct Tiles {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kPieces = 4;  // a thread's
  static constexpr std::uint64_t kPieceBytes = 16;
  static constexpr std::uint64_t kTileBytes = kThreads * kPieces * kPieceBytes;

  std::uint64_t begin;  // addresses; end is no less
  std::uint64_t end;

  [[nodiscard]] GAPLESS_HOST_DEVICE constexpr std::uint64_t count() const {
    return begin == end ? 0 : (end - 1) / kTileBytes - begin / kTileBytes + 1;
  }
  /// Where a tile begins: the first may begin before the range.
  [[nodiscard]] GAPLESS_HOST_DEVICE constexpr std::uint64_t address(std::uint64_t tile) const {
    return (begin / kTileBytes + tile) * kTileBytes;
  }
  [[nodiscard]] GAPLESS_HOST_DEVICE constexpr bool holds(std::uint64_t address,
                                                         std::uint64_t bytes) const {
    return address >= begin && address < end && end - address >= bytes;
  }
};

/// What the kernels take. The one that fills needs no verdict.
struct PatternedMemory {
  gapless_memory_pattern pattern;
  Tiles tiles;
  gapless_memory_verdict* verdict;
};

}  // namespace gapless::kernels
