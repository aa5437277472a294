// DeviceAllocator: blocks that others than the program's streams use.
#include <algorithm>
#include <mutex>

#include "allocator/device/device_allocator.h"

namespace gapless {

Status DeviceAllocator::pin(DeviceAddress address) {
  const std::scoped_lock lock(lock_);
  const Found found = find(address);
  if (found.id == 0) {
    Fence::Block* const fenced = fenced_at(address);
    if (fenced == nullptr) return Status::invalid_argument;
    ++fenced->pins;
    return Status::ok;
  }
  Pinned& pinned = pinned_[address];
  pinned.arena = found.arena;
  ++pinned.pins;
  return Status::ok;
}

Status DeviceAllocator::unpin(DeviceAddress address) {
  const std::scoped_lock lock(lock_);
  const auto found = pinned_.find(address);
  if (found == pinned_.end()) {
    return with_fenced(address, [&](Fence::Block& block) { return check_->fence().unpin(block); });
  }
  if (found->second.pins == found->second.shares) return Status::invalid_argument;
  drop_pin(found);
  return Status::ok;
}

std::size_t DeviceAllocator::pinned_blocks() const {
  const std::scoped_lock lock(lock_);
  return pinned_.size();
}

Status DeviceAllocator::share(DeviceAddress address, SharedBlock& shared) {
  const std::scoped_lock lock(lock_);
  const Found found = find(address);
  if (Fence::Block* const fenced = fenced_at(address); fenced != nullptr) {
    return check_->fence().share(*fenced, shared);
  }
  if (found.id == 0 || found.arena->heap.share() == ShareType::none) {
    return Status::invalid_argument;
  }
  Pinned& pinned = pinned_[address];
  pinned.arena = found.arena;
  ++pinned.pins;
  if (pinned.shares == 0) {
    const DriverStatus status = export_block(*found.arena, found.id, pinned.shared);
    if (status != DriverStatus::ok) {
      last_failure_ = std::string("sharing a block: the driver failed with ") + to_string(status);
      drop_pin(pinned_.find(address));
      return Status::driver_error;
    }
  }
  ++pinned.shares;
  shared = pinned.shared;
  return Status::ok;
}

Status DeviceAllocator::unshare(DeviceAddress address) {
  const std::scoped_lock lock(lock_);
  const auto found = pinned_.find(address);
  if (found == pinned_.end()) {
    return with_fenced(address,
                       [&](Fence::Block& block) { return check_->fence().unshare(block); });
  }
  if (found->second.shares == 0) return Status::invalid_argument;
  if (--found->second.shares == 0) close_descriptors(found->second.shared);
  drop_pin(found);
  return Status::ok;
}

DriverStatus DeviceAllocator::export_block(const Arena& arena, BlockId id, SharedBlock& shared) {
  SharedBlock made;
  made.type = arena.heap.share();
  const Block& block = arena.heap.blocks()[id];
  const std::uint64_t before = arena.before_bytes(block.owner);
  made.bytes = block.size * kUnitBytes - before;
  std::vector<MemoryPiece> pieces = arena.heap.pieces_of(id, made.offset_bytes);
  made.offset_bytes += before;
  if (made.offset_bytes >= pieces.front().bytes) {  // only what is in front of it lies there
    made.offset_bytes -= pieces.front().bytes;
    pieces.erase(pieces.begin());
  }
  for (const MemoryPiece& piece : pieces) {
    SharedPiece shared_piece{{}, piece.bytes};
    const DriverStatus status = driver_.mem_export(piece.handle, made.type, shared_piece.handle);
    if (status != DriverStatus::ok) {
      close_descriptors(made);
      return status;
    }
    made.pieces.push_back(shared_piece);
  }
  shared = std::move(made);
  return DriverStatus::ok;
}

void DeviceAllocator::drop_pin(std::map<DeviceAddress, Pinned>::iterator at) {
  Pinned& pinned = at->second;
  if (--pinned.pins != 0) return;
  Arena& arena = *pinned.arena;
  const BlockId freed = pinned.freed;
  pinned_.erase(at);
  if (freed == 0) return;
  const Block& block = arena.heap.blocks()[freed];
  const std::uint64_t bytes = block.size * kUnitBytes;
  const Owner owner = block.owner;
  const auto signed_bytes = static_cast<std::int64_t>(bytes);
  statistics_.on_deferred(block.small, -1, -signed_bytes, block.extra - signed_bytes);
  give_back(arena, freed, owner, bytes);
}

bool DeviceAllocator::hold_if_pinned(Arena& arena, DeviceAddress address, BlockId id) {
  const auto found = pinned_.find(address);
  if (found == pinned_.end()) return false;
  found->second.freed = id;
  if (ring_ != nullptr) record(AllocatorEvent::Kind::free_requested, arena, id);
  const Block& block = arena.heap.blocks()[id];
  const auto bytes = static_cast<std::int64_t>(block.size * kUnitBytes);
  statistics_.on_free(block.small, bytes, bytes - block.extra);
  statistics_.on_deferred(block.small, 1, bytes, bytes - block.extra);
  return true;
}

bool DeviceAllocator::is_pinned(PoolIndex pool) const {
  return std::any_of(pinned_.begin(), pinned_.end(), [&](const auto& entry) {
    const auto& [address, pinned] = entry;
    const BlockId id = pinned.freed != 0 ? pinned.freed : pinned.arena->find(address);
    const DeviceHeap& heap = pinned.arena->heap;
    return heap.streams().sets().pool_of(heap.blocks()[id].owner) == pool;
  });
}

}  // namespace gapless
