// DeviceAllocator: its private pools, their checkpoints and their sleep.
#include <algorithm>
#include <map>
#include <mutex>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"

namespace gapless {

DeviceHeap::Placed DeviceAllocator::place_in_begun_pool(StreamHandle stream, const Demand& demand,
                                                        Request& request) {
  const PoolIndex index = pools_.serve(stream);
  main_.heap.serve(index);
  if (index == 0) return main_.heap.place(request.units, request.owner, demand);
  PrivatePool& pool = pools_.at(index);
  request.arena = &arena_of(index);
  DeviceHeap& heap = request.arena->heap;
  const Owner general = heap.streams().number_of(stream);
  if (heap.pools().is_asleep(index)) return {Status::invalid_argument};
  bool capturing = false;
  DriverStatus asked = heap.streams().ask_capturing({device_, stream}, capturing);
  if (asked != DriverStatus::ok) asked = heap.streams().ask_capturing({device_, stream}, capturing);
  if (asked != DriverStatus::ok) return DeviceHeap::Placed::failed(asked);
  pool.captured = pool.captured || capturing;
  request.owner = heap.pools().owner_in(general, index);
  DeviceHeap::Placed placed;
  if (pool.no_split) {
    const auto page_units = static_cast<Unit>(heap.page_bytes() / kUnitBytes);
    request.units = align_up(request.units, page_units);
    placed = heap.place_in_whole_pages(request.units, request.owner, general, capturing);
  } else {
    heap.pools().set_lends(index, pool.lends());
    placed = heap.place_in_pool(request.units, request.owner, general, capturing, demand);
  }
  return placed;
}

void DeviceAllocator::note_pool_block(PoolIndex index, std::uint64_t bytes) {
  if (index == 0) return;
  PrivatePool& pool = pools_.at(index);
  pool.has_memory = true;
  ++pool.live_blocks;
  pool.live_bytes += bytes;
}

bool DeviceAllocator::open_pools(Unit units) {
  std::vector<PoolIndex> pools;
  pools_.for_each([&](const PrivatePool& pool) {
    if (!pool.use_on_oom || pool.captured || main_.heap.pools().is_asleep(pool.index)) return;
    pools.push_back(pool.index);
  });
  return !pools.empty() && main_.heap.open_pools(pools, units);
}

void DeviceAllocator::note_pool_free(PoolIndex index, std::uint64_t bytes) {
  if (index == 0) return;
  PrivatePool& pool = pools_.at(index);
  --pool.live_blocks;
  pool.live_bytes -= bytes;
  give_up_if_unused(pool);
}

void DeviceAllocator::give_up_if_unused(const PrivatePool& pool) {
  if (pool.users != 0 || pool.live_blocks != 0 || pools_.is_begun(pool.index)) return;
  saved_.forget(pool.index);
  if (nvtx_ != nullptr) tell_pool_is_gone(pool.index);
  if (const auto found = sourced_.find(pool.index); found != sourced_.end()) {
    DeviceHeap& heap = found->second->arena.heap;
    heap.pools().open(pool.index);
    statistics_.retries += static_cast<std::int64_t>(heap.counters().retries);
    spent_.push_back(std::move(found->second));
    sourced_.erase(found);
    pools_.reuse(pool.index);
    drop_spent();
  } else {
    main_.heap.pools().give_up(pool.index, pool.captured);
  }
  note_memory();  // pages that were asleep are gone
  pools_.forget(pool.index);
  watches_frees_ = pools_.any() || soft_limit_.is_set();
}

void DeviceAllocator::drop_spent() {
  if (spent_.empty() || main_.heap.streams().any_capturing()) return;
  // What cannot be given back now is tried again with the next trim().
  std::erase_if(spent_, [](const auto& sourced) {
    return sourced->arena.heap.release_all() == DriverStatus::ok;
  });
}

PoolId DeviceAllocator::pool_id(PoolIndex index) const {
  // A pool that was given up after captures is nobody's any more.
  return index == 0 || !pools_.has(index) ? PoolId{} : pools_.at(index).id;
}

Status DeviceAllocator::retain_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  make_pool(id);
  return Status::ok;
}

void DeviceAllocator::make_pool(PoolId id) {
  for (const PoolIndex emptied : main_.heap.pools().take_emptied()) pools_.reuse(emptied);
  pools_.retain(id);
  watches_frees_ = true;
}

Status DeviceAllocator::release_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr || pool->users == 0) return Status::invalid_argument;
  --pool->users;
  give_up_if_unused(*pool);
  return Status::ok;
}

Status DeviceAllocator::begin_pool(PoolId id, StreamFilter filter) {
  const std::scoped_lock lock(lock_);
  make_pool(id);
  pools_.begin(id, std::move(filter));
  for_each_arena([](Arena& arena) {
    arena.heap.prepare_capture();
    arena.heap.streams().watch_captures(true);
  });
  return Status::ok;
}

Status DeviceAllocator::end_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  if (!pools_.end(id)) return Status::invalid_argument;
  main_.heap.serve(0);
  const PrivatePool& pool = *pools_.find(id);
  if (pool.captured && !main_.heap.streams().any_capturing()) {
    arena_of(pool.index).heap.pools().unite(pool.index);
  }
  for_each_arena([&](Arena& arena) { arena.heap.streams().watch_captures(pools_.active()); });
  give_up_if_unused(pool);
  return Status::ok;
}

bool DeviceAllocator::may_capture_unseen(const DeviceHeap& heap) const {
  if (capture_marks_ && *capture_marks_ == 0) return false;
  // Requests of all pools are seen there.
  if (&heap != &main_.heap) return main_.heap.streams().any_capturing();
  const StreamSets& sets = heap.streams().sets();
  std::vector<StreamHandle> seen;
  for (std::size_t i = 0; i < sets.streams(); ++i) {
    const DeviceStream& stream = sets.stream(static_cast<StreamIndex>(i));
    if (stream.device == device_) seen.push_back(stream.handle);
  }
  return pools_.begun_for_none_of(seen);
}

void DeviceAllocator::expect_capture_marks() {
  const std::scoped_lock lock(lock_);
  if (!capture_marks_) capture_marks_ = 0;
}

void DeviceAllocator::note_capture(bool begins) {
  const std::scoped_lock lock(lock_);
  capture_marks_ = std::max(0, capture_marks_.value_or(0) + (begins ? 1 : -1));
}

Status DeviceAllocator::set_pool_use_on_oom(PoolId id, bool use) {
  const std::scoped_lock lock(lock_);
  PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr) return Status::invalid_argument;
  pool->use_on_oom = use;
  return Status::ok;
}

Status DeviceAllocator::set_pool_no_split(PoolId id, bool no_split) {
  const std::scoped_lock lock(lock_);
  PrivatePool* const pool = pools_.find(id);
  // Blocks that share pages stay that way.
  if (pool == nullptr || (no_split && pool->live_blocks != 0)) return Status::invalid_argument;
  pool->no_split = no_split;
  main_.heap.pools().set_lends(pool->index, pool->lends());
  return Status::ok;
}

std::uint64_t DeviceAllocator::reserved_beside(const DeviceHeap& heap) const {
  std::uint64_t bytes = main_.heap.reserved_bytes();
  for (const auto& [pool, sourced] : sourced_) bytes += sourced->arena.heap.reserved_bytes();
  for (const auto& sourced : spent_) bytes += sourced->arena.heap.reserved_bytes();
  if (check_ != nullptr) bytes += check_->fence().reserved_bytes();
  return bytes - heap.reserved_bytes();
}

Status DeviceAllocator::set_pool_source(PoolId id, PoolSource source) {
  const std::scoped_lock lock(lock_);
  const PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr || pool->live_blocks != 0 || pools_.is_begun(pool->index) ||
      sourced_.contains(pool->index) || pool->has_memory) {
    return Status::invalid_argument;
  }
  auto& sourced = sourced_[pool->index];
  sourced =
      std::make_unique<SourcedArena>(driver_, device_, properties_, options_, std::move(source));
  DeviceHeap& heap = sourced->arena.heap;
  heap.set_limit_bytes(main_.heap.limit_bytes());
  heap.set_reserved_elsewhere([this, &heap] { return reserved_beside(heap); });
  heap.streams().set_unseen_captures([this, &heap] { return may_capture_unseen(heap); });
  return Status::ok;
}

int DeviceAllocator::pool_users(PoolId id) const {
  const std::scoped_lock lock(lock_);
  const PrivatePool* const pool = pools_.find(id);
  return pool == nullptr ? 0 : pool->users;
}

std::uint64_t DeviceAllocator::pool_live_bytes(PoolId id) const {
  const std::scoped_lock lock(lock_);
  const PrivatePool* const pool = pools_.find(id);
  return pool == nullptr ? 0 : pool->live_bytes;
}

std::vector<PoolDebt> DeviceAllocator::read_owed_to_pools() const {
  std::vector<PoolDebt> owed;
  main_.heap.pools().lenders().for_each_owed([&](PoolIndex pool, std::uint64_t units) {
    owed.push_back({pool_id(pool), units * kUnitBytes});
  });
  return owed;
}

std::vector<PoolDebt> DeviceAllocator::owed_to_pools() const {
  const std::scoped_lock lock(lock_);
  return read_owed_to_pools();
}

PoolState DeviceAllocator::checkpoint_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  PoolState state{id, {}};
  PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr) return state;
  pool->checkpointed = true;
  arena_of(pool->index).heap.pools().set_lends(pool->index, false);
  const DeviceHeap& heap = arena_of(pool->index).heap;
  for_each_block_of(pool->index, [&](BlockId block, const Block& facts) {
    state.blocks.push_back(
        {heap.address_of(block), heap.known_places().of(block), facts.owner, facts.extra});
  });
  return state;
}

Status DeviceAllocator::restore_pool(const PoolState& state, PoolDelta& delta) {
  const std::scoped_lock lock(lock_);
  PrivatePool* const pool = pools_.find(state.id);
  if (pool == nullptr) return Status::invalid_argument;
  Arena& arena = arena_of(pool->index);
  DeviceHeap& heap = arena.heap;
  // By address: what stays is in both.
  std::map<DeviceAddress, const PoolState::BlockState*> wanted;
  for (const PoolState::BlockState& block : state.blocks) wanted[block.address] = &block;
  std::vector<BlockId> leaving;
  for_each_block_of(pool->index, [&](BlockId id, const Block& block) {
    const auto found = wanted.find(heap.address_of(id));
    if (found != wanted.end() && found->second->place.spot.size == block.size) {
      wanted.erase(found);
    } else {
      leaving.push_back(id);
    }
  });
  for (const BlockId id : leaving) {
    if (pinned_.find(heap.address_of(id)) != nullptr) return Status::invalid_argument;
  }
  std::vector<Place> places;
  places.reserve(wanted.size());
  for (const auto& [address, block] : wanted) places.push_back(block->place);
  if (!heap.known_places().could_be_at(places, pool->index, leaving))
    return Status::invalid_argument;
  ++pool->users;  // it stays while it has no block for a moment
  restores_ = true;
  for (const BlockId id : leaving) {
    delta.freed.push_back(heap.address_of(id));
    free_block(arena, arena.take(delta.freed.back()));
  }
  heap.pools().unite_for_restore(pool->index);
  if (check_ != nullptr) MemoryCheck::note_call_site({});  // no request's
  for (const auto& [address, block] : wanted) {
    // The pool may have been given up and made again meanwhile.
    const Owner owner = heap.pools().owner_in(block->owner, pool->index);
    const DeviceHeap::Placed placed = heap.place_at(block->place, owner);
    const std::uint64_t bytes = block->place.spot.size * kUnitBytes;
    note_pool_block(pool->index, bytes);
    note_block(arena, placed, owner, bytes, bytes - block->slack_bytes);
    if (check_ != nullptr) check_begin(arena, placed.block);
    delta.allocated.push_back(address);
  }
  if (statistics_.has_deferred()) statistics_.note_active();
  --pool->users;
  give_up_if_unused(*pool);  // it had blocks, and has none now
  restores_ = false;
  keep_soft_limit();
  return Status::ok;
}

Status DeviceAllocator::sleep_pool(PoolId id, bool save) {
  const std::scoped_lock lock(lock_);
  const PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr || main_.heap.pools().is_asleep(pool->index) || is_pinned(pool->index) ||
      !arena_of(pool->index).heap.uses_vmm()) {
    return Status::invalid_argument;
  }
  if (main_.heap.streams().any_capturing()) return Status::driver_error;
  std::vector<BlockId> blocks;
  for_each_block_of(pool->index, [&](BlockId block, const Block&) { blocks.push_back(block); });
  SavedContents::Contents contents;
  if (save && main_.heap.streams().synchronize() != DriverStatus::ok) return Status::driver_error;
  for (const BlockId block : blocks) {
    if (!save) break;
    const std::uint64_t bytes = main_.heap.blocks()[block].size * kUnitBytes;
    if (saved_.copy(main_.heap.address_of(block), bytes, contents) != DriverStatus::ok) {
      return Status::driver_error;
    }
  }
  const DriverStatus status = main_.heap.sleep(pool->index, blocks);
  ++statistics_.syncs;
  saved_.keep(pool->index, std::move(contents));
  // Halfway, some pages were other ones for a moment.
  if (!main_.heap.pools().is_asleep(pool->index)) (void)restore_contents(pool->index);
  note_memory();
  return status == DriverStatus::ok ? Status::ok : Status::driver_error;
}

Status DeviceAllocator::wake_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  const PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr) return Status::invalid_argument;
  DriverStatus status = main_.heap.pools().wake(pool->index);
  note_memory();
  if (status == DriverStatus::ok) status = restore_contents(pool->index);
  if (status == DriverStatus::ok) return Status::ok;
  return status == DriverStatus::out_of_memory ? Status::out_of_memory : Status::driver_error;
}

DriverStatus DeviceAllocator::restore_contents(PoolIndex pool) {
  // A block that was freed meanwhile has nothing to be brought back.
  return saved_.restore(pool, [this](DeviceAddress address) { return main_.find(address) != 0; });
}

std::vector<DeviceAddress> DeviceAllocator::pool_blocks(PoolId id) const {
  const std::scoped_lock lock(lock_);
  std::vector<DeviceAddress> blocks;
  if (const PrivatePool* const pool = pools_.find(id); pool != nullptr) {
    const DeviceHeap& heap = arena_of(pool->index).heap;
    for_each_block_of(pool->index, [&](BlockId block, const Block& /*facts*/) {
      blocks.push_back(heap.address_of(block));
    });
  }
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

}  // namespace gapless
