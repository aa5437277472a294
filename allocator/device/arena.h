// Arena: a heap and the addresses of its live blocks.
//
// A device has one for its own memory, and one for each private pool whose segments come from an
// allocator of the user's (PoolSource): the same heap over a driver that asks that allocator.
//
//   DeviceAllocator   main arena                         DeviceHeap -> Driver
//                     arena of pool {0, 3}               DeviceHeap -> SourceDriver -> user's alloc
#pragma once

#include <functional>
#include <utility>

#include "allocator/device/device_heap.h"
#include "allocator/driver/forwarding_driver.h"
#include "allocator/heap/live_table.h"

namespace gapless {

/// What an arena's blocks add up to.
struct ArenaSums {
  std::uint64_t used_bytes = 0;       // of live blocks and held ones
  std::uint64_t requested_bytes = 0;  // of live blocks
  std::uint64_t free_bytes = 0;
  std::uint64_t present_bytes = 0;    // in pages that hold blocks or holes
  std::uint64_t elsewhere_bytes = 0;  // of these, asleep or in host memory
};

struct Arena {
  Arena(Driver& driver, DeviceIndex device, const DeviceProperties& properties,
        const Options& options)
      : heap(driver, device, properties, options) {}

  /// The live block at that address; 0 where there is none.
  [[nodiscard]] BlockId find(DeviceAddress address) const {
    return live.find(address, [&](BlockId block) { return address_of(block) == address; });
  }
  /// The same, which is live no more.
  BlockId take(DeviceAddress address) {
    return live.take(address, [&](BlockId block) { return address_of(block) == address; });
  }
  /// The block as the program knows it, behind what is kept in front of it.
  [[nodiscard]] DeviceAddress address_of(BlockId block) const {
    return heap.address_of(block) + before_bytes(heap.blocks()[block].owner);
  }
  /// Bytes in front of whoever's blocks: bands (allocator/check/red_zones.h), which private pools
  /// do not have.
  [[nodiscard]] std::uint64_t before_bytes(Owner owner) const {
    return band_bytes == 0 || heap.streams().sets().pool_of(owner) != 0 ? 0 : band_bytes;
  }

  /// Throws std::logic_error saying what is wrong, if anything is. `held`: blocks beside those in
  /// the table.
  [[nodiscard]] ArenaSums validate(const std::vector<BlockId>& held) const;

  DeviceHeap heap;
  LiveTable live;
  std::uint64_t band_bytes = 0;
};

/// An allocator of the user's that a pool takes its memory from, in multiples of 2 MiB (as
/// torch.cuda.MemPool(allocator) does). Both are called with the device's lock held, and must not
/// call back.
struct PoolSource {
  /// Device memory aligned to 512 B or better; 0 where there is none.
  std::function<DeviceAddress(std::uint64_t bytes)> alloc;
  std::function<void(DeviceAddress address, std::uint64_t bytes)> free;
};

/// A driver whose plain memory comes from a PoolSource.
class SourceDriver final : public ForwardingDriver {
 public:
  SourceDriver(Driver& inner, PoolSource source)
      : ForwardingDriver(inner), source_(std::move(source)) {}

  DriverStatus mem_alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address) override;
  DriverStatus mem_free(DeviceIndex device, DeviceAddress address) override;

 protected:
  DriverStatus around(DriverCall kind, const Call& call) override {
    // What the device has left says nothing of the source.
    return kind == DriverCall::mem_info ? DriverStatus::not_supported : call();
  }

 private:
  PoolSource source_;
  std::map<DeviceAddress, std::uint64_t> bytes_;
};

/// The arena of such a pool.
struct SourcedArena {
  SourcedArena(Driver& inner, DeviceIndex device, DeviceProperties properties,
               const Options& options, PoolSource source);

  SourceDriver driver;
  Arena arena;
};

}  // namespace gapless
