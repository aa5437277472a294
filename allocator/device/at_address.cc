// Blocks at a place that is known (known_places.h): that of a state that is restored, or one at an
// address that the caller names.
#include <mutex>

#include "allocator/device/device_allocator.h"

namespace gapless {

DeviceHeap::Placed DeviceHeap::place_at(const Place& place, Owner owner) {
  Terms terms{Reach(owner)};
  terms.unordered = true;  // who restores a state knows in what order it is used
  return place_there(place, terms);
}

DeviceHeap::Placed DeviceHeap::place_there(const Place& place, const Terms& terms) {
  const WindowSpot& spot = place.spot;
  if (place.window_address != 0) return in_window(spot, terms);
  return in_hole_of_any({known_places().around(spot.begin), spot.begin}, spot.size, terms);
}

DeviceHeap::Placed DeviceHeap::place_at_address(DeviceAddress address, Unit size, Owner owner,
                                                bool capturing) {
  const Request request(*this);
  const PoolIndex pool = streams_.sets().pool_of(owner);
  Terms terms(Reach(owner, 0, streams_.sets().anyone_in(pool), pool));
  terms.unordered = capturing;
  const auto place = known_places().free_at(address, size, terms.reach);
  if (!place) return {Status::invalid_argument};
  Placed placed = place_there(*place, terms);
  if (placed.status == Status::out_of_memory) placed.status = Status::invalid_argument;
  if (capturing) note_captured(placed, owner);
  return placed;
}

Status DeviceAllocator::alloc_at(std::uint64_t bytes, StreamHandle stream, DeviceAddress address,
                                 Usage* usage) {
  if (bytes == 0 || bytes > kMostBytes || address % kUnitBytes != 0) {
    return Status::invalid_argument;
  }
  if (asks_callers()) find_caller();
  const std::scoped_lock lock(lock_);
  std::uint64_t before = 0;
  std::uint64_t wanted = bytes;
  if (check_ != nullptr && pools_.of(stream) == 0) {
    before = check_->before_bytes();
    wanted += before + check_->behind_bytes();
  }
  const Unit units = units_of(wanted);
  Request request{&main_, main_.heap.streams().number_of(stream), units};
  bool capturing = false;
  if (const PoolIndex index = pools_.of(stream); index != 0) {
    PrivatePool& pool = pools_.at(index);
    request.arena = &arena_of(index);
    DeviceHeap& heap = request.arena->heap;
    // Blocks of a no_split pool have pages of their own, wherever they lie.
    if (heap.pools().is_asleep(index) || pool.no_split) return Status::invalid_argument;
    const DriverStatus asked = heap.streams().ask_capturing({device_, stream}, capturing);
    if (asked != DriverStatus::ok) return Status::driver_error;
    pool.captured = pool.captured || capturing;
    request.owner = heap.pools().owner_in(heap.streams().number_of(stream), index);
  }
  const DeviceHeap::Placed placed =
      request.arena->heap.place_at_address(address - before, units, request.owner, capturing);
  if (placed.status != Status::ok) return placed.status;
  begin_block(request, placed, bytes, usage);
  return Status::ok;
}

}  // namespace gapless
