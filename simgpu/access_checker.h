// Finds work that touches memory too early: a race detector for device memory.
//
//   stream 1 writes page 7, bytes 0..1 MiB      stamp (1, 5)
//   stream 2 writes page 7, bytes 0..1 MiB      is (1, 5) ordered before it? no -> a violation
//
// Accesses are kept per *physical* byte range, so that two aliases of one page are one place. Two
// accesses conflict when they overlap, come from different streams, at least one writes, and
// nothing orders the first before the second (Timeline's vector clocks say).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "simgpu/memory_model.h"
#include "simgpu/timeline.h"

namespace gapless::simgpu {

class AccessChecker {
 public:
  explicit AccessChecker(const Timeline& timeline) : timeline_(timeline) {}

  /// Notes an access by `stamp`'s work; returns what is wrong with it, or an empty string.
  std::string access(const PhysicalRange& range, DeviceAddress address, const Stamp& stamp,
                     bool writes);

  /// Whether work that touched memory through a mapping at `address` may still run. `address` is
  /// the mapping's begin.
  [[nodiscard]] bool in_flight(DeviceAddress mapping) const;
  /// The mapping at `address` is gone.
  void forget_mapping(DeviceAddress mapping) { by_mapping_.erase(mapping); }
  void touch_mapping(DeviceAddress mapping, const Stamp& stamp);
  /// The handle is gone; its number will not come again.
  void forget_handle(MemHandle handle) { by_handle_.erase(handle); }

 private:
  struct Use {
    Stamp stamp;
    bool writes = false;
  };
  struct Piece {
    std::uint64_t end = 0;
    std::vector<Use> uses;  // those not ordered before a later use of the same piece
  };
  using Pieces = std::map<std::uint64_t, Piece>;

  static void split_at(Pieces& pieces, std::uint64_t offset);

  const Timeline& timeline_;
  std::unordered_map<MemHandle, Pieces> by_handle_;
  std::unordered_map<DeviceAddress, std::vector<Stamp>> by_mapping_;
};

}  // namespace gapless::simgpu
