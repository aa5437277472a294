// The kernels of integrity.h. Blocks take the tiles of a range in turn (tiles.h); each block adds
// its verdict to that of all, in whole numbers, so that their order does not matter:
//
//   thread 0     checked, mismatches, first, last  \
//   thread 1     checked, mismatches, first, last   >  cub::BlockReduce: merged  ->  atomics
//   ...                                            /
//
// Loads and stores are marked as streaming (.cs), so that caches keep what the program uses.
#include <cub/block/block_reduce.cuh>

#include "kernels/tiles.h"

namespace gapless::kernels {
namespace {

// The bytes of a piece that are the range's.
struct Part {
  std::uint64_t begin;
  std::uint64_t end;
};
__device__ Part part_of(const Tiles& tiles, std::uint64_t piece) {
  const std::uint64_t end = piece + Tiles::kPieceBytes;
  return {piece > tiles.begin ? piece : tiles.begin, end < tiles.end ? end : tiles.end};
}

__device__ uint4 words_of(const RegionPattern& pattern, std::uint64_t piece) {
  const std::uint32_t first = RegionPattern::number_of(piece);
  return make_uint4(pattern.word(first), pattern.word(first + 1), pattern.word(first + 2),
                    pattern.word(first + 3));
}
__device__ std::uint64_t piece_of(std::uint64_t tile_begin, unsigned number) {
  return tile_begin + (number * Tiles::kThreads + threadIdx.x) * Tiles::kPieceBytes;
}

// What one thread finds.
class Finder {
 public:
  __device__ explicit Finder(std::uint64_t begin) : begin_(begin) {}

  __device__ void compare(uint4 found, std::uint64_t piece, const RegionPattern& pattern) {
    found_.checked += Tiles::kPieceBytes;
    const uint4 expected = words_of(pattern, piece);
    const std::uint32_t differences[] = {found.x ^ expected.x, found.y ^ expected.y,
                                         found.z ^ expected.z, found.w ^ expected.w};
    if ((differences[0] | differences[1] | differences[2] | differences[3]) == 0) return;
#pragma unroll
    for (unsigned word = 0; word < 4; ++word) {
      std::uint64_t offset = piece + word * 4 - begin_;
      for (std::uint32_t rest = differences[word]; rest != 0; rest >>= 8, ++offset) {
        if ((rest & 0xff) != 0) add_mismatch(found_, offset);
      }
    }
  }
  __device__ void compare(const Part& part, const RegionPattern& pattern) {
    for (std::uint64_t address = part.begin; address < part.end; ++address) {
      ++found_.checked;
      if (*reinterpret_cast<const unsigned char*>(address) != pattern.byte(address))
        add_mismatch(found_, address - begin_);
    }
  }
  __device__ const gapless_memory_verdict& found() const { return found_; }

 private:
  std::uint64_t begin_;
  gapless_memory_verdict found_ = nothing_checked();
};

struct Merge {
  __device__ gapless_memory_verdict operator()(const gapless_memory_verdict& a,
                                               const gapless_memory_verdict& b) const {
    return merged(a, b);
  }
};

__device__ void add(gapless_memory_verdict& all, const gapless_memory_verdict& found) {
  using Number = unsigned long long;
  atomicAdd(reinterpret_cast<Number*>(&all.checked), Number{found.checked});
  if (found.mismatches == 0) return;
  atomicAdd(reinterpret_cast<Number*>(&all.mismatches), Number{found.mismatches});
  atomicMin(reinterpret_cast<Number*>(&all.first), Number{found.first});
  // UINT64_MAX is -1 with a sign.
  atomicMax(reinterpret_cast<long long*>(&all.last), static_cast<long long>(found.last));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(Tiles::kThreads)
    memory_fill(const __grid_constant__ PatternedMemory memory) {
  const Tiles& tiles = memory.tiles;
  for (std::uint64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const std::uint64_t begin = tiles.address(tile);
    const RegionPattern pattern(memory.pattern, begin);
#pragma unroll
    for (unsigned i = 0; i < Tiles::kPieces; ++i) {
      const std::uint64_t piece = piece_of(begin, i);
      if (tiles.holds(piece, Tiles::kPieceBytes)) {
        __stcs(reinterpret_cast<uint4*>(piece), words_of(pattern, piece));
        continue;
      }
      const Part part = part_of(tiles, piece);
      for (std::uint64_t address = part.begin; address < part.end; ++address) {
        *reinterpret_cast<unsigned char*>(address) = pattern.byte(address);
      }
    }
  }
}

extern "C" __global__ void memory_verify_begin(const __grid_constant__ PatternedMemory memory) {
  *memory.verdict = nothing_checked();
}

extern "C" __global__ void __launch_bounds__(Tiles::kThreads)
    memory_verify(const __grid_constant__ PatternedMemory memory) {
  const Tiles& tiles = memory.tiles;
  Finder finder(tiles.begin);
  for (std::uint64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const std::uint64_t begin = tiles.address(tile);
    const RegionPattern pattern(memory.pattern, begin);
    if (tiles.holds(begin, Tiles::kTileBytes)) {
      // All are on their way before one is looked at.
      uint4 found[Tiles::kPieces];
#pragma unroll
      for (unsigned i = 0; i < Tiles::kPieces; ++i)
        found[i] = __ldcs(reinterpret_cast<const uint4*>(piece_of(begin, i)));
#pragma unroll
      for (unsigned i = 0; i < Tiles::kPieces; ++i)
        finder.compare(found[i], piece_of(begin, i), pattern);
      continue;
    }
    for (unsigned i = 0; i < Tiles::kPieces; ++i) {
      const std::uint64_t piece = piece_of(begin, i);
      if (tiles.holds(piece, Tiles::kPieceBytes)) {
        finder.compare(__ldcs(reinterpret_cast<const uint4*>(piece)), piece, pattern);
      } else {
        finder.compare(part_of(tiles, piece), pattern);
      }
    }
  }
  using Reduce = cub::BlockReduce<gapless_memory_verdict, Tiles::kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const gapless_memory_verdict found = Reduce(storage).Reduce(finder.found(), Merge{});
  if (threadIdx.x == 0) add(*memory.verdict, found);
}

}  // namespace gapless::kernels
