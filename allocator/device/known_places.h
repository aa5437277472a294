// KnownPlaces: where blocks lie, and whether one could lie at a place that is known already.
//
//   home     | live | hole .............. | live |     [ at, at + size ) inside one hole, or
//   window   | live | free places ... | live     |     inside the free places of one window
//
// A pool's state is restored at the places that its blocks had; a caller may name an address. Looks
// only: DeviceHeap makes the block. Each question walks through the home, so none is asked in a
// request that names no place.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "allocator/device/home_mapper.h"
#include "allocator/device/place.h"
#include "allocator/device/window_mapper.h"
#include "allocator/heap/home.h"
#include "allocator/stream/stream_sets.h"

namespace gapless {

class KnownPlaces {
 public:
  KnownPlaces(const BlockTable& blocks, const Home& home, const HomeMapper& home_mapper,
              const WindowMapper& mapper, const StreamSets& sets)
      : blocks_(blocks), home_(home), home_mapper_(home_mapper), mapper_(mapper), sets_(sets) {}

  /// Where a live block lies, so that one can be put there again.
  [[nodiscard]] Place of(BlockId block) const;
  /// Whether blocks could be at all of those places at once: they consist of memory that is free in
  /// the pool, or in host memory, or belongs to these live blocks.
  [[nodiscard]] bool could_be_at(std::span<const Place> places, PoolIndex pool,
                                 std::span<const BlockId> leaving) const;
  /// The place of `size` units at that address, of the home or of a window, where all of it is free
  /// memory that is the reach's owner's or everyone's in its pool; nothing where it is not.
  [[nodiscard]] std::optional<Place> free_at(DeviceAddress address, Unit size,
                                             const Reach& reach) const;
  /// The block of the home around that unit; 0: there is none.
  [[nodiscard]] BlockId around(Unit unit) const;

 private:
  /// The parts of the home that make up those places, by address; nothing where two overlap, or one
  /// is gone.
  [[nodiscard]] std::optional<std::vector<UnitRange>> parts_of(std::span<const Place> places) const;
  /// Host memory that is freed is not the pool's, so a block lies in it as a whole or not at all.
  [[nodiscard]] bool is_partly_on_host(UnitRange range) const;

  const BlockTable& blocks_;
  const Home& home_;
  const HomeMapper& home_mapper_;
  const WindowMapper& mapper_;
  const StreamSets& sets_;
};

}  // namespace gapless
