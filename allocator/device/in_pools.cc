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
#include <algorithm>

#include "allocator/device/device_heap.h"

namespace gapless {

Owner DeviceHeap::owner_in_pool(Owner owner, PoolIndex pool) {
  const Owner in_pool = streams_.sets().in_pool(owner, pool);
  home_.note_pool(in_pool, pool);
  home_.note_pool(streams_.sets().anyone_in(pool), pool);
  return in_pool;
}

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
  const bool is_owed = placed.status != Status::ok && lenders_.owes(room_.served_pool());
  const PageId own_pages = is_owed ? home_.free_pages(all_of_pool(room_.served_pool())) : 0;
  if (placed.status != Status::ok && capturing) {
    const auto beside = [&] { return place_for_capture(size, owner, demand); };
    placed = search(owner, beside, true);
    // What the driver refused once it may grant now.
    if (placed.status != Status::ok && could_fit(size)) placed = search(owner, beside, true);
  } else if (placed.status != Status::ok) {
    placed = place_beyond_pool(size, owner, general, demand);
  }
  if (is_owed && placed.status == Status::ok) {
    const Unit of_own =
        (own_pages - home_.free_pages(all_of_pool(room_.served_pool()))) * page_units_;
    lenders_.note_regained(room_.served_pool(), size - std::min(size, of_own));
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
    if (take_over_in_capture(owner)) return place_in_own_pool(size, owner, capturing);
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

Reach DeviceHeap::all_of_pool(PoolIndex pool) {
  const Owner anyone = streams_.sets().anyone_in(pool);
  return {anyone, streams_.now(), anyone, pool};
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
    captured_.pin(streams_.sets().pool_of(owner), block.prev);
  }
}

bool DeviceHeap::take_over_in_capture(Owner owner) {
  bool taken = false;
  const PoolIndex pool = streams_.sets().pool_of(owner);
  for (std::size_t i = 1; i <= streams_.sets().owners(); ++i) {
    const auto other = static_cast<Owner>(i);
    if (other == owner || streams_.sets().pool_of(other) != pool) continue;
    const Epoch before = streams_.captured_before(owner, other);
    // Who comes after an earlier free of the owner need not come after this: it is as if freed now.
    if (before != 0) taken = home_.settle(other, before, owner, streams_.now()) || taken;
  }
  if (taken) streams_.next_epoch();
  return taken;
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

// --- places that are known -----------------------------------------------------------------------

Place DeviceHeap::place_of(BlockId id) const {
  const Block& block = blocks_[id];
  if (block.state != BlockState::window) return {0, {0, block.begin, block.size}};
  return {mapper_.windows().at(block.prev).address, {block.prev, block.begin, block.size}};
}

bool DeviceHeap::could_be_at(std::span<const Place> places, PoolIndex pool,
                             std::span<const BlockId> leaving) const {
  std::vector<UnitRange> wanted;
  for (const Place& place : places) {
    const WindowSpot& spot = place.spot;
    if (place.window_address == 0) {
      // Host memory that is freed is not the pool's, so a block lies in it as a whole or not at
      // all.
      for (Unit at = spot.begin; at < spot.begin + spot.size; at += page_units_) {
        if (is_spilled(at) != is_spilled(spot.begin)) return false;
      }
      if (is_spilled(spot.begin + spot.size - 1) != is_spilled(spot.begin)) return false;
      wanted.push_back({spot.begin, spot.size});
      continue;
    }
    if (!mapper_.is_there(spot, place.window_address)) return false;
    const auto ranges = mapper_.windows().home_ranges(spot);
    wanted.insert(wanted.end(), ranges.begin(), ranges.end());
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const UnitRange& a, const UnitRange& b) { return a.begin < b.begin; });
  // A window that was repaired meanwhile may have pages now that another place has.
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    if (wanted[i - 1].begin + wanted[i - 1].size > wanted[i].begin) return false;
  }
  std::vector<BlockId> pieces(leaving.begin(), leaving.end());
  for (const BlockId id : leaving) {
    if (blocks_[id].state != BlockState::window) continue;
    for (BlockId lent = blocks_[id].link_next; lent != 0; lent = blocks_[lent].link_next) {
      pieces.push_back(lent);
    }
  }
  std::uint64_t found = 0;
  std::uint64_t needed = 0;
  for (const UnitRange& range : wanted) needed += range.size;
  home_.for_each([&](BlockId id, const Block& block) {
    const PoolIndex free_in = streams_.sets().pool_of(block.owner);
    const bool is_free =
        block.state == BlockState::hole && (free_in == pool || free_in == kSpillPool);
    if (!is_free && std::find(pieces.begin(), pieces.end(), id) == pieces.end()) return;
    auto range = std::partition_point(wanted.begin(), wanted.end(), [&](const UnitRange& each) {
      return each.begin + each.size <= block.begin;
    });
    for (; range != wanted.end() && range->begin < block.end(); ++range) {
      found +=
          std::min(range->begin + range->size, block.end()) - std::max(range->begin, block.begin);
    }
  });
  return found == needed;
}

DeviceHeap::Placed DeviceHeap::place_at(const Place& place, Owner owner) {
  const WindowSpot& spot = place.spot;
  if (place.window_address != 0) {
    Terms terms{Reach(owner)};
    terms.unordered = true;  // who restores a state knows in what order it is used
    return in_window(spot, terms);
  }
  BlockId hole = 0;
  home_.for_each([&](BlockId id, const Block& block) {
    if (block.begin <= spot.begin && spot.begin < block.end()) hole = id;
  });
  return in_hole({hole, spot.begin}, spot.size);
}

DeviceHeap::Placed DeviceHeap::place_at_address(DeviceAddress address, Unit size, Owner owner,
                                                bool capturing) {
  const Request request(*this);
  Placed placed = find_at_address(address, size, owner, capturing);
  if (placed.status == Status::out_of_memory) placed.status = Status::invalid_argument;
  if (capturing) note_captured(placed, owner);
  return placed;
}

// --- giving back ---------------------------------------------------------------------------------

void DeviceHeap::unite_pool(PoolIndex pool) {
  const Owner anyone = streams_.sets().anyone_in(pool);
  home_.note_pool(anyone, pool);
  for (std::size_t owner = 1; owner <= streams_.sets().owners(); ++owner) {
    if (streams_.sets().pool_of(static_cast<Owner>(owner)) != pool) continue;
    home_.settle(static_cast<Owner>(owner), streams_.now(), anyone);
  }
}

void DeviceHeap::unite_for_restore(PoolIndex pool) {
  unite_pool(pool);
  if (memory().any_on_host()) unite_pool(kSpillPool);
}

void DeviceHeap::open_pool(PoolIndex pool) {
  const bool capturing = pool != 0 && streams_.any_capturing();
  const std::size_t owners = streams_.sets().owners();
  for (std::size_t i = 1; i <= owners; ++i) {
    const auto owner = static_cast<Owner>(i);
    if (streams_.sets().pool_of(owner) != pool) continue;
    const bool of_streams = capturing && !streams_.sets().members(owner).empty();
    home_.settle(owner, streams_.now(), of_streams ? owner_in_pool(owner, 0) : kAnyone);
  }
}

bool DeviceHeap::open_pools(std::span<const PoolIndex> pools, Unit size) {
  std::vector<std::uint64_t> debts;
  for (const PoolIndex pool : pools) debts.push_back(lenders_.forgive(pool));
  if (!could_fit(size)) {
    for (std::size_t i = 0; i < pools.size(); ++i) {
      if (debts[i] != 0) lenders_.note_lent(pools[i], debts[i]);
    }
    return false;
  }
  for (const PoolIndex pool : pools) open_pool(pool);
  return true;
}

bool DeviceHeap::borrow_from_pools(std::uint64_t missing) {
  if (streams_.any_capturing()) return false;
  std::uint64_t lent = 0;
  lenders_.for_each([&](PoolIndex pool) {
    if (pool == room_.served_pool() || is_asleep(pool) || lent >= missing) return;
    const std::uint64_t pages = home_.free_pages(all_of_pool(pool));
    // Without it the device would have to have what is missing, with it what is lent.
    if (pages == 0 || !room_.is_there_for(std::max(pages, missing - lent))) return;
    open_pool(pool);
    lenders_.note_lent(pool, pages * page_units_);
    lent += pages;
  });
  return lent != 0;
}

DriverStatus DeviceHeap::sleep(PoolIndex pool, std::span<const BlockId> blocks) {
  const DriverStatus status = finish_streams();
  return status == DriverStatus::ok ? asleep_.put_to_sleep(pool, blocks) : status;
}

void DeviceHeap::give_up_pool(PoolIndex pool, bool captured) {
  lenders_.forget(pool);
  if (is_asleep(pool)) {
    unite_pool(pool);  // a page that several streams share is one hole then
    asleep_.forget(pool);
  }
  if (captured) {
    captured_.give_up(pool);
    return;
  }
  open_pool(pool);
  emptied_pools_.push_back(pool);
}

bool DeviceHeap::reclaim_given_up() {
  if (!captured_.any_given_up() || streams_.any_capturing()) return false;
  // Nobody knows on which streams the graphs ran.
  if (finish_streams() != DriverStatus::ok) return false;
  ++retries_;
  captured_.reclaim([this](PoolIndex pool) {
    open_pool(pool);
    emptied_pools_.push_back(pool);
  });
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
