// DeviceHeap with several streams in use: who may have whose memory, and when.
//
//   own memory, then anyone's        come after those who used it (mostly done long ago)
//   others' memory, oldest first     where it is done already: nobody waits
//   new memory                       within the budget for streams
//   others' memory, oldest first     come after those who freed it, on the device
//
// Which of the others' memory is looked at is decided by the order in which the program freed, not
// by what happens to be done by now: a program that repeats itself meets the same ages, whatever
// the device's pace. Whether it is done decides between that memory and growth.
#include <algorithm>
#include <numeric>
#include <utility>

#include "allocator/base/bytes.h"
#include "allocator/device/device_heap.h"

namespace gapless {
namespace {

// An epoch ends when a stream has freed one of so many parts of all memory: shorter epochs mean
// shorter waits and more events. Measured, docs/measurements.md.
constexpr std::uint64_t kEpochsPerMemory = 64;
// Memory that nobody used for so many epochs is anyone's.
constexpr Epoch kOldAfter = 64;
// Of the age at which others' memory suffices, the part by which younger memory is taken too.
constexpr Epoch kYoungerBy = 4;
// The device is all but full when it has less left than one of so many parts of what it gave. Then
// a window is worth its calls where it spares so many wholly free pages. Measured, too.
constexpr std::uint64_t kFullShare = 200;
constexpr PageId kWorthWindow = 2;

}  // namespace

void DeviceHeap::note_streams() {
  if (open_units_.empty()) home_.tell_streams_apart(streams_.now());
  open_units_.resize(streams_.streams(), 0);
  largest_.resize(streams_.streams(), 0);
}

DriverStatus DeviceHeap::come_after(Owner owner, BlockId hole, UnitRange range) {
  const Owner freed_by = blocks_[hole].owner;
  if (freed_by == owner || unordered_) return DriverStatus::ok;
  return streams_.order_after(owner, freed_by, home_.freed_in(hole, range));
}

DriverStatus DeviceHeap::come_after(Owner owner, const std::vector<UnitRange>& ranges) {
  for (const UnitRange& range : ranges) {
    DriverStatus status = DriverStatus::ok;
    home_.for_each_part(range, [&](BlockId hole, UnitRange part) {
      if (status == DriverStatus::ok) status = come_after(owner, hole, part);
    });
    if (status != DriverStatus::ok) return status;
  }
  return DriverStatus::ok;
}

bool DeviceHeap::is_done(Owner owner, BlockId hole, UnitRange range) {
  const Owner freed_by = blocks_[hole].owner;
  return freed_by == owner || streams_.ask_after(owner, freed_by, home_.freed_in(hole, range));
}

bool DeviceHeap::is_done(Owner owner, const std::vector<UnitRange>& ranges) {
  bool done = true;
  for (const UnitRange& range : ranges) {
    home_.for_each_part(
        range, [&](BlockId hole, UnitRange part) { done = done && is_done(owner, hole, part); });
  }
  return done;
}

DeviceHeap::Placed DeviceHeap::in_hole_of_any(const Fit& fit, Unit size, Owner owner) {
  if (streams_.several()) {
    const DriverStatus status = come_after(owner, fit.hole, {fit.begin, size});
    if (status != DriverStatus::ok) return failure(status);
  }
  return in_hole(fit, size);
}

// --- what streams refuse -------------------------------------------------------------------------
//
//   stream 1, capturing   frees [ 4 | 5 | 6 ] in the capture: no event can say when that is done
//   stream 2 asks         4, 5 and 6 belong to "stream 1, aside", which is within no search's reach
//   afterwards            they are stream 1's again, as old as they were

bool DeviceHeap::set_aside_refused(Owner owner) {
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
    const int place = pool == 0 ? 0 : pool == kSpillPool ? 1 : 2;
    const auto aside_pool = static_cast<PoolIndex>(kAsidePools + place);
    const Owner aside = streams_.sets().members(of).empty() ? streams_.sets().anyone_in(aside_pool)
                                                            : owner_in_pool(of, aside_pool);
    home_.note_pool(aside, aside_pool);
    if (!home_.set_aside(of, last, aside)) continue;
    aside_.emplace_back(of, aside);
    any = true;
  }
  return any;
}

void DeviceHeap::take_back_aside() {
  for (const auto& [owner, aside] : std::exchange(aside_, {})) home_.take_back(owner, aside);
}

DeviceHeap::Placed DeviceHeap::place_in_all(Unit size, Owner owner, const Demand& demand) {
  const Reach reach(owner, streams_.now());
  if (const Fit fit = home_.fit_among_others(size, reach); fit.hole != 0) {
    const Placed placed = in_hole_of_any(fit, size, owner);
    if (ends_search(placed)) return placed;
  }
  if (!use_windows()) return search_again(size, owner, demand);
  if (const auto spot = mapper_.find(size, reach)) {
    const Placed placed = in_window(*spot, owner);
    if (ends_search(placed)) return placed;
  }
  return map_window_or_grow(size, reach, demand, home_.growth_for(size, reach, false));
}

// --- the order of choices ------------------------------------------------------------------------

DeviceHeap::Placed DeviceHeap::place_among_streams(Unit size, Owner owner, const Demand& demand) {
  const Request request(*this);
  if (open_units_.size() != streams_.streams()) note_streams();
  const StreamIndex stream = streams_.sets().members(owner).front();
  largest_[stream] = std::max(largest_[stream], size);
  // What is smaller than a page is one stream's own business.
  const bool recalls = size >= page_units_;
  if (recalls) {
    if (const auto placed = place_as_before(size, owner)) return *placed;
  }
  Placed placed;
  if (const Fit fit = home_.fit(size, owner); fit.hole != 0) {
    if (blocks_[fit.hole].owner == owner) note_reuse(owner, size);
    if (recalls) placed = place_in_pieces(fit, size, owner);
    if (placed.block == 0) placed = in_hole_of_any(fit, size, owner);
  }
  if (placed.block == 0) placed = place_after_miss(size, owner, demand);
  if (recalls && placed.status == Status::ok) recall_.note(place_of(placed.block));
  return placed;
}

DeviceHeap::Placed DeviceHeap::place_in_pieces(const Fit& instead, Unit size, Owner owner) {
  const auto is_full = [&] { return !room_for(device_pages() / kFullShare + 1); };
  if (!use_windows() || home_.is_of_many_pages(size) || !is_full()) return {};
  const PageId broken = home_.pages_broken(instead, size);
  if (broken < kWorthWindow) return {};
  const PageId most = broken - kWorthWindow;
  const auto is_whole = [&](PageId page) { return home_.is_free(page, owner); };
  if (const auto spot = mapper_.find(size, owner)) {
    PageId whole = 0;
    for (const UnitRange& range : mapper_.windows().home_ranges(*spot)) {
      const PageId end = static_cast<PageId>(div_up(range.begin + range.size, page_units_));
      for (PageId page = range.begin / page_units_; page < end; ++page) whole += is_whole(page);
    }
    if (whole <= most) return in_window(*spot, owner);
  }
  WindowPlan plan = mapper_.plan_new(size, owner);
  const auto whole = std::count_if(plan.fills.begin(), plan.fills.end(),
                                   [&](const auto& fill) { return is_whole(fill.page); });
  if (plan.missing != 0 || whole > most) return {};
  ask_for_ceiling();  // others may have given memory back
  if (!is_full()) return {};
  const auto plan_again = [&] { return mapper_.plan_new(size, owner); };
  return place_by_plan(std::move(plan), plan_again, size, owner);
}

void DeviceHeap::note_reuse(Owner owner, Unit size) {
  std::uint64_t& open = open_units_[streams_.sets().members(owner).front()];
  open -= std::min<std::uint64_t>(open, size);
}

std::optional<DeviceHeap::Placed> DeviceHeap::place_as_before(Unit size, Owner owner) {
  const Place* const before = recall_.follow(owner, size);
  if (before == nullptr) return {};
  const Place place = *before;
  const WindowSpot& spot = place.spot;
  const bool in_home = place.window_address == 0;
  if (!in_home && !mapper_.is_there(spot, place.window_address)) return {};
  const auto is_free = [&](Reach reach) {
    return in_home ? home_.is_free({spot.begin, spot.size}, reach)
                   : mapper_.windows().is_free(spot, reach);
  };
  const Epoch now = streams_.now();
  if (!is_free({owner, now})) return {};
  if (is_free(owner)) {
    note_reuse(owner, size);
  } else {
    const Epoch oldest = home_.epoch_needed(size, owner).value_or(now);
    const Epoch enough = std::max<Epoch>(1, oldest + (now - oldest) / kYoungerBy);
    const auto ranges = in_home ? std::vector<UnitRange>{{spot.begin, spot.size}}
                                : mapper_.windows().home_ranges(spot);
    if (!is_free({owner, enough}) && !is_done(owner, ranges)) return {};
  }
  const Placed placed = in_home
                            ? in_hole_of_any({home_.hole_at(spot.begin), spot.begin}, size, owner)
                            : in_window(spot, owner);
  if (placed.status != Status::ok) return {};
  ++recalls_;
  recall_.note(place);
  return placed;
}

std::optional<DeviceHeap::Placed> DeviceHeap::place_in_others(
    Unit size, Owner owner, const Demand& demand, const std::optional<PageRange>& growth) {
  if (options_.cross_stream == CrossStream::never) return {};
  const Reach reach = reach_for(size, owner);
  bool may_wait = options_.cross_stream == CrossStream::wait;
  const auto may_take = [&](bool done) {
    if (done || may_wait) return true;
    may_wait =
        options_.cross_stream == CrossStream::budget && over_budget(size, owner, growth, demand);
    return may_wait;
  };
  if (const Fit fit = home_.fit_among_others(size, reach); fit.hole != 0) {
    if (!may_take(is_done(owner, fit.hole, {fit.begin, size}))) return {};
    return in_hole_of_any(fit, size, owner);
  }
  if (!use_windows()) return {};
  if (const auto spot = mapper_.find(size, reach)) {
    if (!may_take(is_done(owner, mapper_.windows().home_ranges(*spot)))) return {};
    return in_window(*spot, owner);
  }
  if (mapper_.plan(size, owner).missing == 0) return {};  // its own memory is enough
  const WindowPlan plan = mapper_.plan(size, reach);
  std::vector<UnitRange> pages;
  for (const WindowPlan::Fill& fill : plan.fills) {
    if (fill.page != kNoPage && home_.is_free(fill.page, reach)) {
      pages.push_back({fill.page * page_units_, page_units_});
    }
  }
  if (plan.missing != 0 && !may_wait && !over_budget(size, owner, growth, demand)) return {};
  if (!may_take(is_done(owner, pages))) return {};
  return map_window_or_grow(size, reach, demand, growth);
}

void DeviceHeap::free_among_streams(BlockId block, Owner owner) {
  if (open_units_.size() != streams_.streams()) note_streams();
  const std::uint64_t size = blocks_[block].size;
  free_block(block, owner, streams_.note_free(owner));
  if (streams_.watches_captures() && streams_.sets().pool_of(owner) != 0) {
    streams_.note_captured_free(block, owner);
  }
  const Epoch before = streams_.now();
  for (const StreamIndex stream : streams_.sets().members(owner)) {
    if (streams_.sets().pool_of(owner) != 0) break;
    open_units_[stream] += size;
    if (open_units_[stream] * kUnitBytes * kEpochsPerMemory < reserved_bytes()) continue;
    // A stream the program has destroyed refuses; who wants its memory waits for the device then.
    (void)streams_.end_epoch(stream);
    open_units_[stream] = 0;
  }
  if (streams_.now() != before) age();
}

void DeviceHeap::age() {
  const Epoch now = streams_.now();
  if (now <= kOldAfter || streams_.any_capturing()) return;
  for (std::size_t owner = 1; owner <= streams_.sets().owners(); ++owner) {
    const PoolIndex pool = streams_.sets().pool_of(static_cast<Owner>(owner));
    if (pool == 0) home_.settle(static_cast<Owner>(owner), now - kOldAfter);
  }
}

std::uint64_t DeviceHeap::stream_budget_bytes(std::uint64_t peak_bytes) const {
  const auto sum = std::accumulate(largest_.begin(), largest_.end(), std::uint64_t{0});
  const Unit largest = largest_.empty() ? 0 : *std::max_element(largest_.begin(), largest_.end());
  const double share = static_cast<double>(peak_bytes) * options_.stream_budget / 100;
  return std::min(static_cast<std::uint64_t>(share), (sum - largest) * kUnitBytes);
}

bool DeviceHeap::over_budget(Unit size, Owner owner, const std::optional<PageRange>& growth,
                             const Demand& demand) const {
  std::uint64_t missing = growth ? growth->count : UINT64_MAX / page_bytes_;
  if (use_windows()) {
    missing = std::min<std::uint64_t>(missing, mapper_.plan(size, owner).missing);
  }
  if (missing == 0) return false;
  if (!room_for(missing)) return true;
  const std::uint64_t allowed =
      std::max(copies_allowance(), demand.peak_bytes + stream_budget_bytes(demand.peak_bytes));
  return reserved_bytes() + missing * page_bytes_ > allowed;
}

Reach DeviceHeap::reach_for(Unit size, Owner owner) const {
  const Epoch now = streams_.now();
  if (options_.cross_stream == CrossStream::wait) return {owner, now};
  const std::optional<Epoch> needed = home_.epoch_needed(size, owner);
  if (!needed) return {owner, now};
  return {owner, std::max<Epoch>(1, *needed + (now - *needed) / kYoungerBy)};
}

}  // namespace gapless
