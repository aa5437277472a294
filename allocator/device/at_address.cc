// Blocks at an address that the caller names: memory that was freed is had again where it was.
//
//   home     | live | hole .............. | live |     [ at, at + size ) inside one hole, or
//   window   | live | free places ... | live     |     inside the free places of one window
#include <mutex>

#include "allocator/device/device_allocator.h"

namespace gapless {

DeviceHeap::Placed DeviceHeap::find_at_address(DeviceAddress address, Unit size, Owner owner,
                                               bool unordered) {
  const PoolIndex pool = streams_.sets().pool_of(owner);
  const Owner anyone = streams_.sets().anyone_in(pool);
  Terms terms(Reach(owner, 0, anyone, pool));
  terms.unordered = unordered;
  if (const auto begin = home_mapper_.unit_at(address)) {
    BlockId hole = 0;
    home_.for_each([&](BlockId id, const Block& block) {
      const bool usable = block.owner == owner || block.owner == anyone;
      const bool around =
          block.begin <= *begin && *begin < block.end() && block.end() - *begin >= size;
      if (block.state == BlockState::hole && usable && around) hole = id;
    });
    if (hole == 0) return {Status::invalid_argument};
    return in_hole_of_any({hole, *begin}, size, terms);
  }
  std::optional<WindowSpot> found;
  windows().for_each([&](WindowId id, const Window& window) {
    const std::uint64_t bytes = window.pages.size() * page_bytes_;
    if (address < window.address || address - window.address >= bytes) return;
    const WindowSpot spot{id, static_cast<Unit>((address - window.address) / kUnitBytes), size};
    if (mapper_.is_there(spot, window.address) && windows().is_free(spot, terms.reach)) {
      found = spot;
    }
  });
  return found ? in_window(*found, terms) : Placed{Status::invalid_argument};
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
    if (heap.is_asleep(index) || pool.no_split) return Status::invalid_argument;
    const DriverStatus asked = heap.streams().ask_capturing({device_, stream}, capturing);
    if (asked != DriverStatus::ok) return Status::driver_error;
    pool.captured = pool.captured || capturing;
    request.owner = heap.owner_in_pool(heap.streams().number_of(stream), index);
  }
  const DeviceHeap::Placed placed =
      request.arena->heap.place_at_address(address - before, units, request.owner, capturing);
  if (placed.status != Status::ok) return placed.status;
  begin_block(request, placed, bytes, usage);
  return Status::ok;
}

}  // namespace gapless
