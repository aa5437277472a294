// Fence: blocks that end where memory ends, so that whoever goes too far faults at once.
//
//   addresses  [ unmapped page ][ slack |  block   ][ unmapped page ]
//                                band   ^ given     ^ ends here, to 512 B
//   freed      [            nothing is mapped here any more          ]   its pages are others'
//   again
//
// A block has pages of its own, made for it and given back when it is freed, and addresses that are
// not used again before many others were (kQuarantine): what is freed and used all the same faults,
// until then. The program waits for the device at each free, so that work given to it before is
// done. What is left of the pages before the block is a band (red_zones.h), and so is what its size
// was rounded up by.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "allocator/base/status.h"
#include "allocator/check/mistake.h"
#include "allocator/check/requested_checks.h"
#include "allocator/memory/address_space.h"
#include "allocator/memory/physical_memory.h"
#include "allocator/memory/shared_block.h"

namespace gapless {

class Fence {
 public:
  struct Block {
    CheckedBlock facts;
    DeviceAddress begin = 0;  // of its addresses: the first unmapped page
    DeviceAddress mapped_begin = 0;
    std::uint64_t mapped_bytes = 0;
    MemoryPiece memory;
    std::vector<DeviceIndex> other_devices;  // whose work uses it, too
    int pins = 0;                            // pinned or shared so often
    int shares = 0;
    SharedBlock shared;
    bool freed = false;  // by the program; its memory is still there
    bool banded = false;

    /// Bytes of its pages in front of it.
    [[nodiscard]] std::uint64_t slack_bytes() const { return facts.address - mapped_begin; }
  };

  Fence(Driver& driver, DeviceIndex device, std::uint64_t page_bytes, ShareType share,
        const FencedRequests& requests);
  ~Fence() { release_all(); }

  /// Whether the next request is one that gets a fence.
  bool picks(std::uint64_t bytes, const std::string& call_site);

  /// A block for the request; nullptr, and nothing changed, where it would take more than half of
  /// the memory that is left: a program is not to run out because its blocks are fenced.
  Block* make(std::uint64_t bytes, StreamHandle stream, std::string call_site);
  /// The block that begins there and was not freed; nullptr where none does.
  [[nodiscard]] Block* find(DeviceAddress address) { return find_in(blocks_, address); }
  [[nodiscard]] const Block* find(DeviceAddress address) const { return find_in(blocks_, address); }
  /// Waits for the device and takes the memory of a freed block away. Where the driver refuses, the
  /// block is kept and tried again later; so it is while anyone has it pinned.
  DriverStatus take_away(Block& block);
  /// The program frees the block; its memory stays, for now.
  void leave(Block& block);
  /// Tries all that are freed and still there; whether memory went back to the driver.
  bool take_away_freed();

  /// The same, freed or not, as long as it has its memory.
  [[nodiscard]] Block* find_any(DeviceAddress address) {
    const auto found = blocks_.find(address);
    return found == blocks_.end() ? nullptr : &found->second;
  }
  /// DeviceAllocator's, for a block of the fence. One that is freed is to be taken away with its
  /// last pin.
  Status unpin(Block& block);
  Status share(Block& block, SharedBlock& shared);
  Status unshare(Block& block);

  DriverStatus add_peer(DeviceIndex peer);
  /// Calls f(block) for each, those freed and still there included.
  template <class F>
  void for_each(F&& f) const {
    for (const auto& [address, block] : blocks_) f(block);
  }
  template <class F>
  void for_each(F&& f) {
    for (auto& [address, block] : blocks_) f(block);
  }
  [[nodiscard]] std::size_t live() const { return live_; }
  [[nodiscard]] std::uint64_t reserved_bytes() const { return physical_.reserved_bytes(); }
  [[nodiscard]] PhysicalMemory& memory() { return physical_; }
  [[nodiscard]] const PhysicalMemory& memory() const { return physical_; }

  /// Those freed lately, whose addresses are not mapped now; the newest last.
  [[nodiscard]] const std::deque<Block>& retired() const { return retired_; }

  /// Gives everything back; for when no block is live.
  void release_all();

 private:
  // Addresses that are kept unmapped.
  static constexpr std::uint64_t kQuarantineBytes = std::uint64_t{1} << 40;
  static constexpr std::size_t kQuarantineBlocks = 16384;

  [[nodiscard]] std::uint64_t address_bytes(const Block& block) const {
    return block.mapped_bytes + 2 * page_bytes_;
  }
  [[nodiscard]] bool leaves_enough(std::uint64_t bytes) const;
  void retire(Block&& block);
  template <class Blocks>
  static auto find_in(Blocks& blocks, DeviceAddress address) -> decltype(&blocks.begin()->second) {
    const auto found = blocks.find(address);
    return found == blocks.end() || found->second.freed ? nullptr : &found->second;
  }

  Driver& driver_;
  DeviceIndex device_;
  std::uint64_t page_bytes_;
  FencedRequests requests_;
  std::uint64_t seen_ = 0;  // requests that a fence was thought of for
  PhysicalMemory physical_;
  AddressSpace space_;
  std::map<DeviceAddress, Block> blocks_;
  std::size_t live_ = 0;
  std::deque<Block> retired_;
  std::uint64_t retired_bytes_ = 0;
};

}  // namespace gapless
