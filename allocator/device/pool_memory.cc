#include "allocator/device/pool_memory.h"

#include <algorithm>

namespace gapless {

Owner PoolMemory::owner_in(Owner owner, PoolIndex pool) {
  const Owner in_pool = streams_.sets().in_pool(owner, pool);
  home_.note_pool(in_pool, pool);
  home_.note_pool(streams_.sets().anyone_in(pool), pool);
  return in_pool;
}

Reach PoolMemory::all_of(PoolIndex pool) {
  const Owner anyone = streams_.sets().anyone_in(pool);
  return {anyone, streams_.now(), anyone, pool};
}

template <class F>
void PoolMemory::for_each_owner_in(PoolIndex pool, F&& f) const {
  // Owners that f makes are not of this pool.
  const std::size_t owners = streams_.sets().owners();
  for (std::size_t i = 1; i <= owners; ++i) {
    const auto owner = static_cast<Owner>(i);
    if (streams_.sets().pool_of(owner) == pool) f(owner);
  }
}

// --- whose it is ---------------------------------------------------------------------------------

void PoolMemory::unite(PoolIndex pool) {
  const Owner anyone = streams_.sets().anyone_in(pool);
  home_.note_pool(anyone, pool);
  for_each_owner_in(pool, [&](Owner owner) { home_.settle(owner, streams_.now(), anyone); });
}

void PoolMemory::unite_for_restore(PoolIndex pool) {
  unite(pool);
  if (home_mapper_.memory().any_on_host()) unite(kSpillPool);
}

bool PoolMemory::take_over_in_capture(Owner owner) {
  bool taken = false;
  for_each_owner_in(streams_.sets().pool_of(owner), [&](Owner other) {
    if (other == owner) return;
    const Epoch before = streams_.captured_before(owner, other);
    // Who comes after an earlier free of the owner need not come after this: it is as if freed now.
    if (before != 0) taken = home_.settle(other, before, owner, streams_.now()) || taken;
  });
  if (taken) streams_.next_epoch();
  return taken;
}

void PoolMemory::open(PoolIndex pool) {
  const bool capturing = pool != 0 && streams_.any_capturing();
  for_each_owner_in(pool, [&](Owner owner) {
    const bool of_streams = capturing && !streams_.sets().members(owner).empty();
    home_.settle(owner, streams_.now(), of_streams ? owner_in(owner, 0) : kAnyone);
  });
}

bool PoolMemory::open(std::span<const PoolIndex> pools, std::uint64_t lacking, Room& room) {
  std::vector<std::uint64_t> debts;
  for (const PoolIndex pool : pools) debts.push_back(lenders_.forgive(pool));
  if (!room.could_serve(lacking)) {
    for (std::size_t i = 0; i < pools.size(); ++i) {
      if (debts[i] != 0) lenders_.note_lent(pools[i], debts[i]);
    }
    return false;
  }
  for (const PoolIndex pool : pools) open(pool);
  return true;
}

// --- lent ----------------------------------------------------------------------------------------

bool PoolMemory::borrow(std::uint64_t missing, Room& room) {
  if (streams_.any_capturing()) return false;
  std::uint64_t lent = 0;
  lenders_.for_each([&](PoolIndex pool) {
    if (pool == room.served_pool() || is_asleep(pool) || lent >= missing) return;
    const std::uint64_t pages = home_.free_pages(all_of(pool));
    // Without it the device would have to have what is missing, with it what is lent.
    if (pages == 0 || !room.is_there_for(std::max(pages, missing - lent))) return;
    open(pool);
    lenders_.note_lent(pool, pages * home_.page_units());
    lent += pages;
  });
  return lent != 0;
}

std::optional<PageId> PoolMemory::pages_if_owed(PoolIndex pool) {
  if (!lenders_.owes(pool)) return std::nullopt;
  return home_.free_pages(all_of(pool));
}

void PoolMemory::note_regained(PoolIndex pool, Unit size, PageId pages_before) {
  const Unit of_own = (pages_before - home_.free_pages(all_of(pool))) * home_.page_units();
  lenders_.note_regained(pool, size - std::min(size, of_own));
}

// --- given up ------------------------------------------------------------------------------------

void PoolMemory::give_up(PoolIndex pool, bool captured) {
  lenders_.forget(pool);
  if (is_asleep(pool)) {
    unite(pool);  // a page that several streams share is one hole then
    asleep_.forget(pool);
  }
  if (captured) {
    captured_.give_up(pool);
    return;
  }
  open(pool);
  emptied_.push_back(pool);
}

void PoolMemory::reclaim() {
  captured_.reclaim([this](PoolIndex pool) {
    open(pool);
    emptied_.push_back(pool);
  });
}

}  // namespace gapless
