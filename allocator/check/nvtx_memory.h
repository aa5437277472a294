// NvtxMemory: which heaps and regions a tool knows of, of one device's memory (nvtx.h).
//
//   mappings  [   2 MiB  ][   2 MiB  ]        [  2 MiB   ]      each a heap
//   blocks       [ a ][     b    ]               [ c ]
//   regions      [ a ][ b ][  b  ]               [ c ]          b is two: a region lies in one heap
//
// At each moment the regions are what blocks and heaps have in common. So it does not matter which
// comes first and goes first: a block whose pool sleeps has no region until memory is mapped there
// again. What was freed but may be touched all the same is kept: it stays a region until another
// block takes the memory or its group is forgotten. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/check/nvtx.h"

namespace gapless {

class NvtxMemory {
 public:
  /// Kept ranges that are forgotten together: a private pool's number, from 1 on, whose graphs may
  /// use them again when it has slept; or one of these, which go when they are unmapped.
  using Group = std::uint32_t;
  static constexpr Group kWhileCapturing = 0;  // the host could not wait for work on it
  static constexpr Group kUntilUnmapped = UINT32_MAX;

  NvtxMemory() = default;
  NvtxMemory(const NvtxMemory&) = delete;
  NvtxMemory& operator=(const NvtxMemory&) = delete;

  // --- mappings, whole ones --------------------------------------------------------------------

  void note_mapped(DeviceAddress address, std::uint64_t bytes) { mappings_[address] = {bytes}; }
  /// The device may touch that range: what is mapped there is a heap from now on.
  void note_access(DeviceAddress address, std::uint64_t bytes);
  /// They are about to be unmapped, and no heaps any more; or the driver refused.
  void hide(DeviceAddress address, std::uint64_t bytes);
  void show(DeviceAddress address, std::uint64_t bytes);
  /// They are unmapped.
  void note_unmapped(DeviceAddress address, std::uint64_t bytes);
  /// The size of the mapping that begins there; 0 where none does.
  [[nodiscard]] std::uint64_t mapped_bytes(DeviceAddress address) const;

  // --- blocks ----------------------------------------------------------------------------------

  /// A block is handed out. `name`: what it is, for the tool's reports.
  void begin(DeviceAddress address, std::uint64_t bytes, std::string_view name);
  /// It may be touched no more.
  void end(DeviceAddress address);
  /// It is freed, and kept in that group.
  void keep(DeviceAddress address, Group group);
  /// What is kept in that group may be touched no more.
  void forget(Group group);
  /// What is kept in that group is kept in another from now on.
  void move(Group from, Group to);

  /// What of a range no block has may be touched as long as this lives: by ourselves, who fill and
  /// read memory that is free.
  class Opened {
   public:
    Opened(NvtxMemory& memory, std::vector<DeviceAddress> ranges)
        : memory_(memory), ranges_(std::move(ranges)) {}
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened() {
      for (const DeviceAddress range : ranges_) memory_.end(range);
    }

   private:
    NvtxMemory& memory_;
    std::vector<DeviceAddress> ranges_;
  };
  [[nodiscard]] Opened open(DeviceAddress address, std::uint64_t bytes);

  /// Whether there was memory to tell of, and nobody who wanted to know.
  [[nodiscard]] bool nobody_listens() const { return asked_ && !heard_; }

 private:
  struct Mapping {
    std::uint64_t bytes = 0;
    bool accessible = false;
    nvtx::Heap heap = nullptr;  // nullptr: not accessible yet, or the tool did not take it
  };
  struct Block {
    std::uint64_t bytes = 0;
    bool kept = false;
    Group group = 0;
    std::string name;
  };
  using Blocks = std::map<DeviceAddress, Block>;

  /// Calls f(mapping's address, mapping) for each that intersects the range.
  template <class F>
  void for_each_mapping(DeviceAddress address, std::uint64_t bytes, F&& f);
  /// The same of blocks.
  template <class F>
  void for_each_block(DeviceAddress address, std::uint64_t bytes, F&& f);
  Blocks::iterator add(DeviceAddress address, Block block);
  Blocks::iterator erase(Blocks::iterator block);
  /// Kept ranges lose what they have in that range; those of pools, too, where a block begins.
  void cut(DeviceAddress address, std::uint64_t bytes, bool of_pools);

  std::map<DeviceAddress, Mapping> mappings_;
  Blocks blocks_;                      // none touches another's bytes
  std::map<Group, std::size_t> kept_;  // how many there are
  bool asked_ = false;
  bool heard_ = false;
};

}  // namespace gapless
