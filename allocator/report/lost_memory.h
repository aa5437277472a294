// LostMemory: where the memory lies that is reserved and serves nobody, and why it does.
//
//   |aaaaaaaa|........................|   a whole segment    of a size that nobody asks for now
//   |aaa.....................b........|   pinned             little is live in it, but it cannot go
//   |aaaaaaaaaaaaa|rest|bbbbbbbbbb|...|   behind blocks      1 MiB and less is not split off
//   stream 7 |........|                   other streams      only the stream that freed it may use
//   it pool (0, 1) |.....|                   private pools      only the pool may (CUDA graphs,
//   MemPool)
//
// Each free byte is in one part, so the parts add up to what is reserved and serves nobody. What
// was left with a block counts as behind it, whether the file tells the block's real size or not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/report/memory_state.h"

namespace gapless {

enum class Loss : std::uint8_t {
  private_pools,
  other_streams,
  small_pool,  // holes for requests up to 1 MiB
  whole_segments,
  behind_blocks,
  pinned,
  holes,  // between blocks of segments that are mostly in use
};
constexpr std::size_t kLosses = 7;
/// "private pools", "other streams", ...
const char* to_string(Loss loss);

/// A segment of which at most a quarter is in use.
struct PinnedSegment {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;
  DeviceIndex device = 0;
  std::uint64_t blocks = 0;  // that are live in it
  StateBlock largest;        // of these
};

struct LostMemory {
  struct Part {
    std::uint64_t bytes = 0;
    std::uint64_t pieces = 0;
  };
  std::uint64_t free_bytes = 0;
  Part parts[kLosses];
  /// The most free memory first, ten at most.
  std::vector<PinnedSegment> pinned;
  /// Of what lies behind blocks: the sizes most of it lies behind, asked for.
  std::uint64_t behind_from_bytes = 0;  // of the smaller half and the larger half of it
  std::uint64_t behind_to_bytes = 0;

  [[nodiscard]] const Part& part(Loss loss) const { return parts[static_cast<std::size_t>(loss)]; }
};

/// The stream with the most reserved memory counts as the program's own, others as "other".
LostMemory lost_memory(const MemoryState& state);

}  // namespace gapless
