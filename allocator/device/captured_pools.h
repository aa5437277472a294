// CapturedPools: private pools in which graphs were captured. A graph writes to its addresses each
// time it runs, so the windows it lies in stay as they are.
//
//   pool 3   windows 7, 9 pinned     in use
//   pool 5   window 12 pinned        given up; nobody knows on which streams its graphs ran, so its
//                                    memory is others' only once the device was waited for
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "allocator/device/window_mapper.h"

namespace gapless {

class CapturedPools {
 public:
  explicit CapturedPools(WindowMapper& mapper) : mapper_(mapper) {}

  /// The window stays as it is until the pool is given up and reclaimed.
  void pin(PoolIndex pool, WindowId window) {
    std::vector<WindowId>& pinned = pinned_[pool];
    if (std::find(pinned.begin(), pinned.end(), window) != pinned.end()) return;
    pinned.push_back(window);
    mapper_.pin(window);
  }
  void give_up(PoolIndex pool) { given_up_.push_back(pool); }
  [[nodiscard]] bool any_given_up() const { return !given_up_.empty(); }
  /// The device was waited for: calls f(pool) for each that was given up. Its windows may change
  /// again.
  template <class F>
  void reclaim(F&& f) {
    for (const PoolIndex pool : std::exchange(given_up_, {})) {
      f(pool);
      for (const WindowId window : pinned_[pool]) mapper_.unpin(window);
      pinned_.erase(pool);
    }
  }

 private:
  WindowMapper& mapper_;
  std::map<PoolIndex, std::vector<WindowId>> pinned_;
  std::vector<PoolIndex> given_up_;
};

}  // namespace gapless
