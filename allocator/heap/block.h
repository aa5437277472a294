// Block records: one per piece of the heap, in host memory, 32 bytes each.
//
//   home  | live 3 | hole 5      | live 7 | lent 4 | absent ...        (sizes in units of 512 B)
//           ^prev    ^ a block    ^next
//
// Blocks of the home tile it: each knows its neighbours by address. A window block (an allocation
// that lives in a window) is no neighbour of anything; it owns a chain of lent blocks in the home,
// which keep its pages from being used twice. Records are named by index and recycled, so that a
// program in its stride touches the same few cache lines over and over.
#pragma once

#include <cstdint>

namespace gapless {

inline constexpr std::uint64_t kUnitBytes = 512;

/// Offsets and lengths in the heap, in units of 512 B: 32 bits reach 2 TiB.
using Unit = std::uint32_t;
/// The number of a page, counted from the home's begin.
using PageId = std::uint32_t;
/// Names a block record; 0 is none. (Record 0 exists, so that links to none can be written.)
using BlockId = std::uint32_t;
/// Whose memory it is: 0 everyone's, else a stream's or a set of streams' number (stream/).
using Owner = std::uint16_t;
inline constexpr Owner kAnyone = 0;
/// When memory was freed, in the host's order (stream/).
using Epoch = std::uint32_t;
inline constexpr Epoch kNeverUsed = 0;
/// Later than any.
inline constexpr Epoch kNoEpoch = UINT32_MAX;

enum class BlockState : std::uint8_t {
  unused,  // the record itself is free
  absent,  // no physical memory here
  hole,    // free memory
  live,    // an allocation in the home
  lent,    // used through a window, by the window block that `link_next` chains lead from
  window,  // an allocation in a window: begin = first lent unit's offset, size = its units
};

struct Block {
  Unit begin = 0;
  Unit size = 0;
  BlockId prev = 0;  // neighbours by address; a window block: window number and place in it
  BlockId next = 0;
  BlockId link_prev = 0;  // hole: its bin's list. lent: unused
  BlockId link_next = 0;  // hole: its bin's list. lent: the next lent block. window: the first one
  std::uint32_t extra = 0;  // live, window: units * 512 - requested bytes. hole: epoch of its free
  Owner owner = kAnyone;    // hole: whose it is. live, window: who uses it
  BlockState state = BlockState::unused;
  bool small = false;  // live, window: counted in PyTorch's small pool

  [[nodiscard]] Unit end() const { return begin + size; }
};
static_assert(sizeof(Block) == 32);

/// Records by index, recycled last in, first out. References stay valid: all records lie in one
/// range of host addresses, of which the system backs only what was touched.
class BlockTable {
 public:
  BlockTable();
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  [[nodiscard]] Block& operator[](BlockId id) { return blocks_[id]; }
  [[nodiscard]] const Block& operator[](BlockId id) const { return blocks_[id]; }

  /// A record in state `unused`; it is the caller's until recycle(). Throws std::bad_alloc when
  /// there is none left.
  BlockId make() {
    const BlockId id = free_;
    if (id == 0) return make_fresh();
    Block& block = blocks_[id];
    free_ = block.next;
    block.next = 0;
    return id;
  }

  void recycle(BlockId id) {
    Block& block = blocks_[id];
    block = Block{};
    block.next = free_;
    free_ = id;
  }

 private:
  BlockId make_fresh();

  Block* blocks_ = nullptr;
  BlockId free_ = 0;
  BlockId fresh_ = 1;  // never used so far, from here on; 0 names no block
  BlockId end_ = 0;
};

}  // namespace gapless
