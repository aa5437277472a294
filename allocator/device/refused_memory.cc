#include "allocator/device/refused_memory.h"

#include "allocator/device/inner_pools.h"

namespace gapless {

bool RefusedMemory::set_aside(Owner owner) {
  streams_.take_refusals();
  const PoolIndex own_pool = streams_.sets().pool_of(owner);
  bool any = false;
  const std::size_t owners = streams_.sets().owners();
  for (std::size_t i = 0; i <= owners; ++i) {
    const auto of = static_cast<Owner>(i);
    const PoolIndex pool = streams_.sets().pool_of(of);
    if (of == owner || (pool != 0 && pool != own_pool && pool != kSpillPool)) continue;
    const Epoch last = streams_.refused_after(of);
    if (last == kNoEpoch) continue;
    const Owner aside = aside_of(of);
    if (!home_.set_aside(of, last, aside)) continue;
    aside_.emplace_back(of, aside);
    any = true;
  }
  return any;
}

Owner RefusedMemory::aside_of(Owner owner) {
  StreamSets& sets = streams_.sets();
  const PoolIndex pool = sets.pool_of(owner);
  const int place = pool == 0 ? 0 : pool == kSpillPool ? 1 : 2;
  const auto aside_pool = static_cast<PoolIndex>(kAsidePools + place);
  const Owner anyone = sets.anyone_in(aside_pool);
  home_.note_pool(anyone, aside_pool);
  if (sets.members(owner).empty()) return anyone;
  const Owner aside = sets.in_pool(owner, aside_pool);
  home_.note_pool(aside, aside_pool);
  return aside;
}

}  // namespace gapless
