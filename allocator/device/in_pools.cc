// DeviceHeap in private pools: memory that is a pool's own until the pool is given up.
//
//   a pool's request --> its own free memory, in the home or a window
//                        (while a graph is captured: also what others freed, where the graph's
//                        order proves that they are done with it)
//                    --> both side by side in a window, where that takes fewer new pages
//                    --> memory for everyone, which is the pool's from then on
//                        (while a graph is captured: only what is known to be done; nobody waits)
//                    --> both, whatever that takes
//
// A captured graph writes to its addresses each time it runs, also to those of blocks that were
// freed in the capture: the windows they lie in are pinned, and neither unmapped nor repaired.
#include "allocator/device/device_heap.h"

namespace gapless {

Owner DeviceHeap::owner_with_use(Owner owner, const DeviceStream& stream) {
  const Owner used = streams_.with_use(owner, stream);
  home_.note_pool(used, streams_.sets().pool_of(used));
  return used;
}

DeviceHeap::Placed DeviceHeap::place_in_pool(Unit size, Owner owner, Owner general, bool capturing,
                                             const Demand& demand) {
  const Request request(*this);
  note_streams();
  const auto in_own = [&] { return place_in_own_pool(size, owner, capturing); };
  Placed placed = search(owner, in_own, capturing);
  std::optional<PageId> owed_before;
  if (placed.status != Status::ok) owed_before = pools_.pages_if_owed(room_.served_pool());
  if (placed.status != Status::ok && capturing) {
    const auto beside = [&] { return place_for_capture(size, owner, demand); };
    placed = search(owner, beside, true);
    // What the driver refused once it may grant now.
    if (placed.status != Status::ok && could_fit(size)) placed = search(owner, beside, true);
  } else if (placed.status != Status::ok) {
    placed = place_beyond_pool(size, owner, general, demand);
  }
  if (owed_before && placed.status == Status::ok) {
    pools_.note_regained(room_.served_pool(), size, *owed_before);
  }
  if (capturing) note_captured(placed, owner);
  return placed;
}

DeviceHeap::Placed DeviceHeap::place_in_own_pool(Unit size, Owner owner, bool capturing) {
  const PoolIndex pool = streams_.sets().pool_of(owner);
  Terms terms(Reach(owner, 0, streams_.sets().anyone_in(pool), pool), Effort::none);
  terms.unordered = capturing;
  const Placed placed = place_on(size, terms, {});
  if (ends_search(placed)) return placed;
  if (capturing) {
    if (pools_.take_over_in_capture(owner)) return place_in_own_pool(size, owner, capturing);
    terms.effort = Effort::map;
    return map_window_or_grow(size, terms, {});
  }
  terms.reach.others_up_to = streams_.now();  // what other streams freed in the pool
  terms.effort = Effort::map;
  return place_on(size, terms, {});
}

DeviceHeap::Placed DeviceHeap::place_beyond_pool(Unit size, Owner owner, Owner general,
                                                 const Demand& demand) {
  const auto beside = [&] { return place_on(size, in_pool_and_beside(owner), demand); };
  Placed placed = failure();
  if (pool_spares_pages(size, owner, general)) placed = search(owner, beside);
  if (placed.status != Status::ok) placed = place(size, general, demand);
  // What the driver refused once it may grant now.
  for (int tries = 0; tries < 2 && placed.status != Status::ok; ++tries) {
    if (use_windows() && could_fit(size)) placed = search(owner, beside);
  }
  return placed;
}

Reach DeviceHeap::in_pool_and_beside(Owner owner) {
  const PoolIndex pool = streams_.sets().pool_of(owner);
  Reach reach(owner, streams_.now(), streams_.sets().anyone_in(pool), pool);
  reach.others_pool_too = 0;
  return reach;
}

bool DeviceHeap::pool_spares_pages(Unit size, Owner owner, Owner general) {
  const Reach both = in_pool_and_beside(owner);
  Reach own = both;
  own.others_pool_too = own.others_pool;
  if (!use_windows() || home_.free_pages(own) == 0) return false;
  if (home_.fit(size, general).hole != 0 || mapper_.find(size, general)) return false;
  return mapper_.plan(size, both).missing < mapper_.plan(size, general).missing;
}

DeviceHeap::Placed DeviceHeap::place_in_whole_pages(Unit size, Owner owner, Owner general,
                                                    bool capturing) {
  const Request request(*this);
  note_streams();
  // All of the pool's blocks are like this one, so all its holes are whole pages.
  const auto in_own = [&] { return place_in_own_pool(size, owner, capturing); };
  Placed placed = search(owner, in_own, capturing);
  const auto beside = [&] { return take_whole_pages(size, owner, general, capturing); };
  const auto try_others = [&] {
    if (placed.status != Status::ok) placed = search(owner, beside, capturing);
  };
  try_others();
  if (placed.status != Status::ok && could_fit(size)) {
    const bool waited = reclaim_given_up() || (!capturing && !streams_.any_capturing() &&
                                               finish_streams() == DriverStatus::ok);
    if (waited || placed.status == Status::driver_error) try_others();
  }
  if (capturing) note_captured(placed, owner);
  return placed;
}

DeviceHeap::Placed DeviceHeap::take_whole_pages(Unit size, Owner owner, Owner general,
                                                bool capturing) {
  const PoolIndex pool = streams_.sets().pool_of(owner);
  const Reach of_pool(owner, 0, streams_.sets().anyone_in(pool), pool);
  // In a capture what is everyone's is others': only what is known to be done is good.
  Terms terms(capturing ? Reach(owner, streams_.all_completed(), of_pool.anyone, 0)
                        : Reach(general, streams_.now()));
  terms.unordered = capturing;
  terms.whole_pages = true;
  terms.grows_beside = of_pool;
  const Placed placed = place_on(size, terms, {});
  if (ends_search(placed) || capturing) return placed;
  terms.reach = in_pool_and_beside(owner);
  return place_on(size, terms, {});
}

void DeviceHeap::note_captured(const Placed& placed, Owner owner) {
  if (placed.status != Status::ok) return;
  streams_.note_captured(placed.block, owner);
  const Block& block = blocks_[placed.block];
  if (block.state == BlockState::window) {
    pools_.pin(streams_.sets().pool_of(owner), block.prev);
  }
}

DeviceHeap::Placed DeviceHeap::place_for_capture(Unit size, Owner owner, const Demand& demand) {
  const Owner anyone = streams_.sets().anyone_in(streams_.sets().pool_of(owner));
  Terms terms(Reach(owner, streams_.all_completed(), anyone, 0), Effort::map);
  terms.unordered = true;
  const Placed placed = place_on(size, terms, demand);
  if (ends_search(placed)) return placed;
  terms.effort = Effort::create;
  return map_window_or_grow(size, terms, growth_on(size, terms));
}

// --- asleep, given up, captured ------------------------------------------------------------------

DriverStatus DeviceHeap::sleep(PoolIndex pool, std::span<const BlockId> blocks) {
  const DriverStatus status = finish_streams();
  return status == DriverStatus::ok ? pools_.put_to_sleep(pool, blocks) : status;
}

bool DeviceHeap::reclaim_given_up() {
  // Nobody knows on which streams the graphs ran.
  if (!pools_.may_reclaim() || finish_streams() != DriverStatus::ok) return false;
  ++retries_;
  pools_.reclaim();
  return true;
}

void DeviceHeap::prepare_capture() {
  streams_.tell_apart();
  note_streams();
  for (std::size_t i = 0; i < streams_.streams(); ++i) {
    const auto stream = static_cast<StreamIndex>(i);
    (void)streams_.close_epoch(stream);
  }
  (void)streams_.poll();
}

}  // namespace gapless
