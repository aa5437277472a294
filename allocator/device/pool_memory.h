// PoolMemory: what private pools have free, and whose it becomes.
//
//   pool 3   begun by two streams    what each freed is its own; united: any request's in the pool
//   pool 4   lends (lenders.h)       everyone's while pages lack; the device keeps as much for it
//   pool 5   sleeps                  nobody's: the device has the pages (sleeping_pools.h)
//   pool 6   given up                everyone's; after captures (captured_pools.h) only once the
//                                    device was waited for
//
// Pool 0 is none: what is free there is for everyone. In what order a request looks through a pool
// and beside it is DeviceHeap's matter (in_pools.cc).
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "allocator/device/captured_pools.h"
#include "allocator/device/home_mapper.h"
#include "allocator/device/inner_pools.h"
#include "allocator/device/lenders.h"
#include "allocator/device/room.h"
#include "allocator/device/sleeping_pools.h"
#include "allocator/device/window_mapper.h"
#include "allocator/heap/home.h"
#include "allocator/stream/stream_ledger.h"

namespace gapless {

class PoolMemory {
 public:
  PoolMemory(const BlockTable& blocks, Home& home, StreamLedger& streams, HomeMapper& home_mapper,
             WindowMapper& mapper)
      : home_(home),
        streams_(streams),
        home_mapper_(home_mapper),
        captured_(mapper),
        asleep_(blocks, home, streams.sets(), home_mapper, mapper) {}

  /// The owner as one of that pool.
  Owner owner_in(Owner owner, PoolIndex pool);
  /// All that is free in the pool.
  [[nodiscard]] Reach all_of(PoolIndex pool);

  // --- whose it is ------------------------------------------------------------------------------

  /// What is free in the pool is good for all of it: its graphs run one after the other.
  void unite(PoolIndex pool);
  /// The same, and of what is free in host memory: blocks are to be where they were.
  void unite_for_restore(PoolIndex pool);
  /// While a graph is captured: what other streams of it freed in the pool becomes the owner's,
  /// where its next work comes after theirs. Whether there was any.
  bool take_over_in_capture(Owner owner);
  /// What is free in the pool is good for everyone; while a graph is captured, for those who freed
  /// it: others can come after some of them only.
  void open(PoolIndex pool);
  /// The same of all of these, to which nothing is owed either (lenders.h), for a request that
  /// lacks so many pages; false, and all is as it was, where the device has not got them even so.
  bool open(std::span<const PoolIndex> pools, std::uint64_t lacking, Room& room);

  // --- lent (lenders.h) -------------------------------------------------------------------------

  [[nodiscard]] const Lenders& lenders() const { return lenders_; }
  /// Whether what is free in the pool may serve others for a time.
  void set_lends(PoolIndex pool, bool lends) { lenders_.set(pool, lends); }
  /// What pools have free is everyone's from now on, until that many pages are, as far as the
  /// device has as much left for them; false where none is.
  bool borrow(std::uint64_t missing, Room& room);
  /// The free pages of a pool that is owed something; nothing where it is not.
  [[nodiscard]] std::optional<PageId> pages_if_owed(PoolIndex pool);
  /// A request of `size` units of the pool was served, when it had that many: what it took beyond
  /// them is not owed any more.
  void note_regained(PoolIndex pool, Unit size, PageId pages_before);

  // --- asleep (sleeping_pools.h) ----------------------------------------------------------------

  /// Gives the pages back to the device that hold only the pool's `blocks` (all of them that live)
  /// and holes, and keeps every address; the device must be idle. On failure all is as it was,
  /// unless the driver refuses that too.
  DriverStatus put_to_sleep(PoolIndex pool, std::span<const BlockId> blocks) {
    return asleep_.put_to_sleep(pool, blocks);
  }
  /// Brings memory back at every address. On failure what was not mapped yet stays asleep.
  DriverStatus wake(PoolIndex pool) { return asleep_.wake(pool); }
  [[nodiscard]] const SleepingPools& asleep() const { return asleep_; }
  [[nodiscard]] bool is_asleep(PoolIndex pool) const { return asleep_.is_asleep(pool); }

  // --- given up ---------------------------------------------------------------------------------

  /// A graph was captured that uses the window: it stays as it is while the pool is there.
  void pin(PoolIndex pool, WindowId window) { captured_.pin(pool, window); }
  /// The pool has neither users nor blocks any more. `captured`: graphs were captured in it; its
  /// memory is for others only after the device was waited for, which happens when it is needed.
  void give_up(PoolIndex pool, bool captured);
  /// Whether there is memory of given up pools for which the device may be waited for now.
  [[nodiscard]] bool may_reclaim() const {
    return captured_.any_given_up() && !streams_.any_capturing();
  }
  /// The device was waited for: that memory is everyone's.
  void reclaim();
  /// The pools that were given up and have no memory any more, since the last call.
  [[nodiscard]] std::vector<PoolIndex> take_emptied() { return std::exchange(emptied_, {}); }

 private:
  /// Calls f(owner) for each of the pool.
  template <class F>
  void for_each_owner_in(PoolIndex pool, F&& f) const;

  Home& home_;
  StreamLedger& streams_;
  HomeMapper& home_mapper_;
  Lenders lenders_;
  CapturedPools captured_;
  SleepingPools asleep_;
  std::vector<PoolIndex> emptied_;
};

}  // namespace gapless
