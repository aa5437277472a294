// DeviceHeap spilling: host memory where the device has none left.
//
//   device   [ used | used | free | used | free ]     full; a request of four pages
//   host     [ page | page ]                          made for it
//   window   [ free | free | page | page ]            device and host pages side by side
//
// Kernels reach host pages over the bus, far more slowly; the job goes on. What is free
// there is nobody's (the pool kSpillPool), so that no request goes there while the device has
// memory: it is looked at when a request would fail otherwise, and given back first.
#include <algorithm>
#include <utility>

#include "allocator/device/device_heap.h"

namespace gapless {

DeviceHeap::Placed DeviceHeap::place_in_spill(Unit size, Owner owner, const Demand& demand) {
  const Request request(*this);
  if (!can_spill() || streams_.any_capturing()) return failure();
  // Device and host memory are told apart by owner, as streams are.
  streams_.tell_apart();
  note_streams();
  ++misses_;
  room_.ask();
  const std::uint64_t host_pages = spill_.bytes_left(memory().host_bytes()) / page_bytes_;
  if (pages_lacking(size) > room_.pages_left() + host_pages) return failure();
  spill_.note_wanted(demand);
  const auto there = [&] { return place_in_spilled(size, owner, host_pages); };
  const Placed placed = search(owner, there);
  // What the driver refused once it may grant now.
  return placed.status == Status::ok ? placed : search(owner, there);
}

DeviceHeap::Placed DeviceHeap::place_in_spilled(Unit size, Owner owner, std::uint64_t host_pages) {
  const Owner spilled = pools_.owner_in(owner, kSpillPool);
  Terms terms(Reach(owner, streams_.now()));
  terms.reach.others_pool_too = kSpillPool;
  const Placed placed = place_as_it_is(size, terms);
  if (ends_search(placed)) return placed;
  if (use_windows()) {
    WindowPlan plan = plan_on(size, terms);
    if (plan.missing > room_.pages_left() + host_pages) return failure();
    return place_by_plan(std::move(plan), size, terms, 0, true);
  }
  const auto growth = home_.growth_for(size, Reach(spilled, 0, spilled, kSpillPool), false);
  if (!growth || !may_spill(growth->count)) return failure();
  const DriverStatus status = grow(*growth, spilled, frame_order(growth->count), true);
  if (status != DriverStatus::ok) return failure(status);
  return in_hole_of_any(placement_.fit(size, spilled, spilled), size, terms);
}

bool DeviceHeap::give_back_spilled() {
  if (memory().host_bytes() == 0) return true;
  pools_.unite(kSpillPool);
  const Owner anyone = streams_.sets().anyone_in(kSpillPool);
  bool given_back = true;
  for (const PageRange& run : home_.free_runs(Reach(anyone, 0, anyone, kSpillPool))) {
    given_back = (mapper_.drop_pages(run) && ungrow(run)) && given_back;
  }
  return given_back;
}

void DeviceHeap::give_back_idle_spill(const Demand& demand) {
  if (!spill_.is_idle(demand)) return;
  const Reach free(kAnyone, streams_.now(), kAnyone, kSpillPool);
  const std::uint64_t there = memory().host_bytes() / page_bytes_;
  // Memory for everyone is counted with it.
  if (home_.free_pages(free) - home_.free_pages(kAnyone) != there) return;
  if (streams_.any_capturing() || finish_streams() != DriverStatus::ok) return;
  (void)give_back_spilled();
}

}  // namespace gapless
