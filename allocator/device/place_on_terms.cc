// DeviceHeap: a request on given terms, in the order that takes the fewest driver calls.
//
//   a hole of the home, a place in a window    as they are
//   what pools lend                            and from the beginning
//   growth                                     where copies grow, or where no window needs fewer
//   a window repaired, extended, made          new pages
//
// Each step comes after those who used its memory, by waits on the device, and changes nothing
// where it fails.
#include <algorithm>
#include <utility>

#include "allocator/base/bytes.h"
#include "allocator/device/device_heap.h"

namespace gapless {

DeviceHeap::Placed DeviceHeap::place_on(Unit size, const Terms& terms, const Demand& demand) {
  if (!terms.whole_pages) {
    const Placed placed = place_as_it_is(size, terms);
    if (ends_search(placed)) return placed;
  }
  if (terms.effort == Effort::none) return failure();
  if (terms.for_everyone && take_from_pools(size, terms.reach)) {
    return search_again(size, terms.owner(), demand);
  }
  std::optional<PageRange> growth;
  if (terms.effort == Effort::create) growth = growth_on(size, terms);
  if (growth && terms.for_everyone &&
      reserved_bytes() + growth->count * page_bytes_ <= copies_allowance() &&
      room_.is_there_for(growth->count)) {
    const Placed placed = grow_and_place(*growth, size, terms);
    if (ends_search(placed)) return placed;
    growth.reset();
  }
  return map_window_or_grow(size, terms, growth);
}

DeviceHeap::Placed DeviceHeap::place_as_it_is(Unit size, const Terms& terms) {
  const Reach& reach = terms.reach;
  if (const Fit fit = placement_.fit(size, reach.owner, reach.anyone); fit.hole != 0) {
    const Placed placed = in_hole_of_any(fit, size, terms);
    if (ends_search(placed)) return placed;
  }
  if (reach.others_up_to != 0) {
    if (const Fit fit = home_.fit_among_others(size, reach); fit.hole != 0) {
      const Placed placed = in_hole_of_any(fit, size, terms);
      if (ends_search(placed)) return placed;
    }
  }
  if (!use_windows()) return failure();
  const auto spot = mapper_.find(size, reach);
  return spot ? in_window(*spot, terms) : failure();
}

DeviceHeap::Placed DeviceHeap::map_window_or_grow(Unit size, const Terms& terms,
                                                  const std::optional<PageRange>& growth) {
  ++misses_;
  if (!use_windows()) return growth ? grow_and_place(*growth, size, terms) : failure();
  WindowPlan plan = plan_on(size, terms);
  if (growth && growth->count <= plan.missing) return grow_and_place(*growth, size, terms);
  const bool creates = terms.effort == Effort::create;
  if (creates ? !room_.is_there_for(plan.missing) : plan.missing != 0) {
    return failure(DriverStatus::out_of_memory);
  }
  if (creates && !terms.whole_pages) {
    const auto repair = mapper_.plan_repair(size, terms.reach, plan);
    if (repair) {
      const Placed placed = place_by_plan(*repair, size, terms, plan.calls);
      if (ends_search(placed)) return placed;
      plan = plan_on(size, terms);  // places of the window may be gone
    }
  }
  const Placed placed = place_by_plan(std::move(plan), size, terms);
  if (!growth || ends_search(placed)) return placed;
  // A driver that has no addresses for windows may still map what comes to the home's.
  const auto still = growth_on(size, terms);
  return still ? grow_and_place(*still, size, terms) : placed;
}

// --- growth -------------------------------------------------------------------------------------

std::optional<PageRange> DeviceHeap::growth_on(Unit size, const Terms& terms) const {
  return home_.growth_for(size, terms.growth_reach(), !vmm_);
}

DeviceHeap::Placed DeviceHeap::grow_and_place(PageRange pages, Unit size, const Terms& terms) {
  const Reach reach = terms.growth_reach();
  if (!room_.is_there_for(pages.count)) return failure(DriverStatus::out_of_memory);
  // New memory joins the hole before it, whose ever that is.
  const BlockId below = home_.hole_below(pages.first, reach);
  DriverStatus status = DriverStatus::ok;
  if (below != 0 && streams_.watches_captures()) {  // which may not be had now
    status = earlier_.come_after(terms, below, {blocks_[below].begin, blocks_[below].size});
  }
  if (status == DriverStatus::ok) {
    const Owner owner = below != 0 ? blocks_[below].owner : reach.owner;
    pages = with_rest_of_frame(pages);
    status = grow(pages, owner, frame_order(pages.count));
  }
  if (status != DriverStatus::ok) return failure(status);
  if (reach.except == nullptr) {
    return in_hole_of_any(placement_.fit(size, reach.owner, reach.anyone), size, terms);
  }
  // Up to the end of the new pages, and not in what others use still.
  const BlockId hole = home_.hole_at(pages.first << page_shift_);
  const Unit end = std::min(blocks_[hole].end(), (pages.first + pages.count) << page_shift_);
  return in_hole_of_any({hole, end - size}, size, terms);
}

DriverStatus DeviceHeap::create_pages(PageId count, Owner owner, FrameOrder order, bool on_host,
                                      std::vector<PageRange>& added) {
  // Before the host's, what the device still has: page by page where it does not say.
  const std::uint64_t step = on_host && !room_.is_told() ? 1 : UINT64_MAX;
  std::uint64_t of_device = on_host ? room_.pages_left() : count;
  while (count != 0) {
    const bool spills = on_host && of_device == 0;
    const auto most = std::min<std::uint64_t>(count, spills ? count : std::min(of_device, step));
    const auto run = home_.absent_run(static_cast<PageId>(most));
    if (!run) return DriverStatus::out_of_memory;
    if (spills && !may_spill(run->count)) return DriverStatus::out_of_memory;
    const DriverStatus status = spills ? grow(*run, pools_.owner_in(owner, kSpillPool), order, true)
                                       : grow(*run, owner, order);
    if (status == DriverStatus::out_of_memory && on_host && !spills) {
      of_device = 0;
      continue;
    }
    if (status != DriverStatus::ok) return status;
    added.push_back(*run);
    count -= run->count;
    of_device -= spills ? 0 : run->count;
  }
  return DriverStatus::ok;
}

// --- windows ------------------------------------------------------------------------------------

WindowPlan DeviceHeap::plan_on(Unit size, const Terms& terms) const {
  return terms.whole_pages ? mapper_.plan_whole_pages(size, terms.reach)
                           : mapper_.plan(size, terms.reach);
}

WindowPlan DeviceHeap::plan_again(Unit size, const Terms& terms, std::uint32_t repair_below) const {
  if (repair_below != 0) {
    if (auto repair = mapper_.plan_repair_again(size, terms.reach, repair_below)) return *repair;
  }
  return plan_on(size, terms);
}

DeviceHeap::Placed DeviceHeap::place_by_plan(WindowPlan plan, Unit size, const Terms& terms,
                                             std::uint32_t repair_below, bool on_host) {
  WindowSpot spot;
  const DriverStatus status = map_window(std::move(plan), size, terms, repair_below, on_host, spot);
  return status == DriverStatus::ok ? in_window(spot, terms) : failure(status);
}

DriverStatus DeviceHeap::map_window(WindowPlan plan, Unit size, const Terms& terms,
                                    std::uint32_t repair_below, bool on_host, WindowSpot& spot) {
  std::vector<PageRange> added;
  DriverStatus status = DriverStatus::ok;
  if (plan.missing != 0) {
    if (!on_host && !room_.is_there_for(plan.missing)) return DriverStatus::out_of_memory;
    status = create_pages(plan.missing, terms.owner(), frame_order(plan.missing), on_host, added);
    if (status == DriverStatus::ok) plan = plan_again(size, terms, repair_below);
    if (status == DriverStatus::ok && plan.missing != 0) status = DriverStatus::out_of_memory;
  }
  if (status == DriverStatus::ok && streams_.several()) {
    status = earlier_.come_after(terms, mapper_.home_ranges(plan, size));
  }
  if (status == DriverStatus::ok) status = mapper_.map(plan, home_mapper_.handles(), size, spot);
  if (status != DriverStatus::ok) {
    for (const PageRange& run : added) (void)ungrow(run);
  }
  return status;
}

}  // namespace gapless
