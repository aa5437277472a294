// SleepingPools: a pool's physical pages go back to the device while every address stays taken.
//
//   awake    home | weights | weights | cache | other |     pages 0 1 2 3, all there
//   asleep   home |    .    |    .    |   .   | other |     pages 0 1 2 unmapped and released
//   awake    home | weights | weights | cache | other |     other memory, at the same addresses
//
// Pages go that hold nothing but the pool's blocks and holes; one that it shares with others stays,
// and so does host memory, which is none of the device's. They are unmapped in every window too;
// where a live block lies in one, the place is remembered and filled again. Contents are the
// caller's matter (DeviceAllocator saves them).
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "allocator/device/home_mapper.h"
#include "allocator/device/window_mapper.h"

namespace gapless {

class SleepingPools {
 public:
  SleepingPools(const BlockTable& blocks, Home& home, const StreamSets& sets,
                HomeMapper& home_mapper, WindowMapper& mapper)
      : blocks_(blocks), home_(home), sets_(sets), home_mapper_(home_mapper), mapper_(mapper) {}

  /// The pool's pages go; `blocks` are all of its live ones, and the device is idle. On failure all
  /// is as it was, unless the driver refuses that too.
  DriverStatus put_to_sleep(PoolIndex pool, std::span<const BlockId> blocks);
  /// Brings memory back at every address. On failure what was not mapped yet stays asleep.
  DriverStatus wake(PoolIndex pool);
  /// The pool has no block any more, and its memory is one owner's: its pages are absent from now.
  void forget(PoolIndex pool);

  [[nodiscard]] bool is_asleep(PoolIndex pool) const { return asleep_.contains(pool); }
  /// Whether that page's frame is.
  [[nodiscard]] bool is_asleep_at(PageId page) const {
    const PageId frame = home_.frames().begin(page);
    return std::any_of(asleep_.begin(), asleep_.end(), [&](const auto& pool) {
      const std::vector<PageId>& frames = pool.second.frames;
      return std::binary_search(frames.begin(), frames.end(), frame);
    });
  }
  /// Pages of the home whose memory the device has back.
  [[nodiscard]] PageId pages() const {
    PageId count = 0;
    for (const auto& [pool, asleep] : asleep_) {
      for (const PageId page : asleep.frames) count += home_.frames().pages(page);
    }
    return count;
  }

 private:
  struct Asleep {
    std::vector<PageId> frames;  // by their first pages
    std::vector<WindowPlace> places;
  };
  [[nodiscard]] std::vector<PageId> frames_only_of(PoolIndex pool,
                                                   std::span<const BlockId> blocks) const;

  const BlockTable& blocks_;
  Home& home_;
  const StreamSets& sets_;
  HomeMapper& home_mapper_;
  WindowMapper& mapper_;
  std::map<PoolIndex, Asleep> asleep_;
};

}  // namespace gapless
