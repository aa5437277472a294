// DeviceAllocator: blocks that others than the program's streams use.
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
  pinned_.add(address, *found.arena);
  return Status::ok;
}

Status DeviceAllocator::unpin(DeviceAddress address) {
  const std::scoped_lock lock(lock_);
  const PinnedBlocks::Pinned* const pinned = pinned_.find(address);
  if (pinned == nullptr) {
    return with_fenced(address, [&](Fence::Block& block) { return check_->fence().unpin(block); });
  }
  if (pinned->pins == pinned->shares) return Status::invalid_argument;
  drop_pin(address);
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
  PinnedBlocks::Pinned& pinned = pinned_.add(address, *found.arena);
  if (pinned.shares == 0) {
    const DriverStatus status = export_block(*found.arena, found.id, pinned.shared);
    if (status != DriverStatus::ok) {
      failures_.explain(std::string("sharing a block: the driver failed with ") +
                        to_string(status));
      drop_pin(address);
      return Status::driver_error;
    }
  }
  ++pinned.shares;
  shared = pinned.shared;
  return Status::ok;
}

Status DeviceAllocator::unshare(DeviceAddress address) {
  const std::scoped_lock lock(lock_);
  PinnedBlocks::Pinned* const pinned = pinned_.find(address);
  if (pinned == nullptr) {
    return with_fenced(address,
                       [&](Fence::Block& block) { return check_->fence().unshare(block); });
  }
  if (pinned->shares == 0) return Status::invalid_argument;
  if (--pinned->shares == 0) close_descriptors(pinned->shared);
  drop_pin(address);
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

void DeviceAllocator::drop_pin(DeviceAddress address) {
  const auto released = pinned_.drop(address);
  if (!released) return;
  Arena& arena = *released->arena;
  const Block& block = arena.heap.blocks()[released->block];
  const std::uint64_t bytes = block.size * kUnitBytes;
  const Owner owner = block.owner;
  const auto signed_bytes = static_cast<std::int64_t>(bytes);
  statistics_.on_deferred(block.small, -1, -signed_bytes, block.extra - signed_bytes);
  give_back(arena, released->block, owner, bytes);
}

bool DeviceAllocator::hold_if_pinned(Arena& arena, DeviceAddress address, BlockId id) {
  if (!pinned_.hold(address, id)) return false;
  if (log_.is_on()) record(AllocatorEvent::Kind::free_requested, arena, id);
  const Block& block = arena.heap.blocks()[id];
  const auto bytes = static_cast<std::int64_t>(block.size * kUnitBytes);
  statistics_.on_free(block.small, bytes, bytes - block.extra);
  statistics_.on_deferred(block.small, 1, bytes, bytes - block.extra);
  return true;
}

bool DeviceAllocator::is_pinned(PoolIndex pool) const {
  return pinned_.any([&](const Arena& arena, BlockId id) {
    return arena.heap.streams().sets().pool_of(arena.heap.blocks()[id].owner) == pool;
  });
}

}  // namespace gapless
