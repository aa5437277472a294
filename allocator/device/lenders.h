// Lenders: pools that lend what is free in them, and what they are owed for it.
//
//                       the pool          everyone       the device keeps for it
//   forward, in it      9 used  3 free     2 used         0
//   backward            9       lends 3    2 + 3 used     3     nothing grows
//   next forward        9 + 3 used         2 used         0     it has them back, or others
//
// A pool's memory is its own so that others do not take it, not so that it lies idle: what it lent
// it gets again from what is free by then or, where that is not enough, from the device, which is
// left that much. So nobody runs out of memory who would not if pools lent nothing. A pool whose
// memory others may use when they run out (use_on_oom) is owed nothing from then on. Pools that
// graphs were captured in lend nothing: the graphs write there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "allocator/heap/block.h"
#include "allocator/stream/stream_sets.h"

namespace gapless {

class Lenders {
 public:
  void set(PoolIndex pool, bool lends) {
    if (lends || pools_.contains(pool)) pools_[pool].lends = lends;
  }
  void forget(PoolIndex pool) { pools_.erase(pool); }

  void note_lent(PoolIndex pool, std::uint64_t units) { pools_[pool].owed_units += units; }
  void note_regained(PoolIndex pool, std::uint64_t units) {
    const auto found = pools_.find(pool);
    if (found == pools_.end()) return;
    found->second.owed_units -= std::min(found->second.owed_units, units);
  }
  /// Nothing is owed to that pool any more. What was, in units.
  std::uint64_t forgive(PoolIndex pool) {
    const auto found = pools_.find(pool);
    return found == pools_.end() ? 0 : std::exchange(found->second.owed_units, 0);
  }
  /// Owed to all but that one.
  [[nodiscard]] std::uint64_t owed_units(PoolIndex except) const {
    std::uint64_t units = 0;
    for (const auto& [pool, lender] : pools_) units += pool == except ? 0 : lender.owed_units;
    return units;
  }
  [[nodiscard]] bool owes(PoolIndex pool) const {
    const auto found = pools_.find(pool);
    return found != pools_.end() && found->second.owed_units != 0;
  }
  /// Calls f(pool, units) for each that is owed something.
  template <class F>
  void for_each_owed(F&& f) const {
    for (const auto& [pool, lender] : pools_) {
      if (lender.owed_units != 0) f(pool, lender.owed_units);
    }
  }
  [[nodiscard]] bool any() const { return !pools_.empty(); }

  /// Calls f(pool) for each that lends.
  template <class F>
  void for_each(F&& f) const {
    for (const auto& [pool, lender] : pools_) {
      if (lender.lends) f(pool);
    }
  }

 private:
  struct Lender {
    bool lends = false;
    std::uint64_t owed_units = 0;
  };
  std::map<PoolIndex, Lender> pools_;
};

}  // namespace gapless
