// WhatFits: what is free on the simulated device, told from outside of the allocator.
//
//   handle    1        2        3        4          every handle a block was ever seen in
//   blocks  |## ....|........|###|####|.......|
//   users     {0,0}    {0,0}    {0,0}    {0,3}      the pools whose blocks were in it
//                                {0,3}
//   free               2                 4          wholly; 4 only for pool {0, 3}, while that
//   lives
//
// Nothing is known here of holes, windows, owners and epochs: only which physical bytes blocks lie
// in, which pools and streams they were of, and when they were freed. That says less than is free,
// never more: what no block was ever in does not count, nor what lies free in partly used handles.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "allocator/device/pools.h"
#include "simgpu/sim_driver.h"

namespace gapless::testing {

class WhatFits {
 public:
  /// A handle with no byte in use.
  struct Free {
    bool on_host = false;
    std::set<PoolId> users;  // the pools of the blocks that were in it; {0, 0}: no pool
    std::map<std::uint32_t, std::uint64_t> freed;  // by stream: when a block that it used went
  };

  explicit WhatFits(const simgpu::SimDriver& gpu) : gpu_(gpu) {}

  /// A block of that pool lives there.
  void begin(std::span<const simgpu::PhysicalRange> ranges, PoolId pool);
  /// It does no more, at that time, since when these streams may still use it.
  void end(std::span<const simgpu::PhysicalRange> ranges, std::span<const std::uint32_t> streams,
           std::uint64_t now);
  /// The pool has no memory any more.
  void forget(PoolId pool);
  /// Bytes of handles that are wholly free and meet that.
  [[nodiscard]] std::uint64_t free_bytes(const std::function<bool(const Free&)>& counts);
  /// Bytes of all handles in which blocks of the pool ever were, since it was last forgotten.
  [[nodiscard]] std::uint64_t ever_bytes(PoolId pool) const;

 private:
  struct Page {
    std::uint64_t used_bytes = 0;
    Free facts;
  };

  const simgpu::SimDriver& gpu_;
  std::map<MemHandle, Page> pages_;
  std::map<PoolId, std::uint64_t> ever_bytes_;
};

}  // namespace gapless::testing
