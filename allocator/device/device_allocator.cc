#include "allocator/device/device_allocator.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>

#include "allocator/base/bytes.h"

namespace gapless {

DeviceAllocator::DeviceAllocator(Driver& driver, DeviceIndex device,
                                 const DeviceProperties& properties, const Options& options)
    : nvtx_(options.check.nvtx ? std::make_unique<NvtxDriver>(driver) : nullptr),
      driver_(nvtx_ == nullptr ? driver : *nvtx_),
      device_(device),
      properties_(properties),
      options_(options),
      main_(driver_, device, properties, options),
      soft_limit_(options.soft_limit),
      watches_frees_(soft_limit_.is_set()),
      saved_(driver_, device),
      deferred_(driver_) {
  if (options.check != RequestedChecks{} || options.fence.one_of != 0) make_check();
  main_.heap.set_reserved_elsewhere([this] { return reserved_beside(main_.heap); });
  main_.heap.streams().set_unseen_captures([this] { return may_capture_unseen(main_.heap); });
}

DeviceAllocator::~DeviceAllocator() {
  if (lock_.is_abandoned()) return;
  for_each_arena([](Arena& arena) {
    if (arena.live.size() == 0) (void)arena.heap.release_all();
  });
  for (const auto& sourced : spent_) (void)sourced->arena.heap.release_all();
  if (check_ != nullptr && check_->fence().live() == 0) check_->fence().release_all();
  pinned_.close();
}

Status DeviceAllocator::alloc(std::uint64_t bytes, StreamHandle stream, DeviceAddress& address,
                              std::uint64_t rounded_bytes, Usage* usage) {
  if (bytes == 0) [[unlikely]] {
    address = 0;
    return Status::ok;
  }
  if (asks_callers()) [[unlikely]]
    find_caller();
  Status status = Status::ok;
  {
    const std::scoped_lock lock(lock_);
    if (alloc_in_hole(bytes, rounded_bytes, stream, address, usage)) [[likely]]
      return Status::ok;
    status = alloc_locked(bytes, rounded_bytes, stream, address, usage, false);
  }
  if (status != Status::ok && status != Status::invalid_argument) {
    status = alloc_after_failure(bytes, rounded_bytes, stream, address, usage, status);
  }
  if (check_ != nullptr) [[unlikely]]
    tell_mistakes();
  return status;
}

inline bool DeviceAllocator::alloc_in_hole(std::uint64_t bytes, std::uint64_t rounded_bytes,
                                           StreamHandle stream, DeviceAddress& address,
                                           Usage* usage) {
  const std::uint64_t wanted = wanted_bytes(bytes, rounded_bytes);
  DeviceHeap& heap = main_.heap;
  const Owner owner = heap.streams().number_of(stream);
  if (heap.streams().several() || wanted > kMostBytes || pools_.active() ||
      statistics_.has_deferred() || check_ != nullptr) {
    return false;
  }
  const auto units = units_of(wanted);
  const DeviceHeap::Placed placed = heap.place_in_hole(units, owner);
  if (placed.block == 0) [[unlikely]]
    return false;
  note_block(main_, placed, owner, std::uint64_t{units} * kUnitBytes, bytes);
  if (usage != nullptr) *usage = usage_with(std::uint64_t{units} * kUnitBytes);
  address = placed.address;
  return true;
}

Status DeviceAllocator::alloc_after_failure(std::uint64_t bytes, std::uint64_t rounded_bytes,
                                            StreamHandle stream, DeviceAddress& address,
                                            Usage* usage, Status status) {
  const auto again = [&](bool last_resort) {
    const std::scoped_lock lock(lock_);
    return alloc_locked(bytes, rounded_bytes, stream, address, usage, last_resort);
  };
  if (status == Status::out_of_memory && bytes <= kMostBytes && free_some_memory()) {
    status = again(false);
  }
  if (status != Status::ok && (options_.headroom != 0 || options_.spill != 0)) status = again(true);
  if (status == Status::out_of_memory) note_out_of_memory(bytes, stream);
  return status;
}

bool DeviceAllocator::free_some_memory() {
  std::vector<FailedRequests::Callback> callbacks;
  {
    const std::scoped_lock lock(lock_);
    callbacks = failures_.callbacks();
  }
  bool freed = false;
  for (const auto& callback : callbacks) freed = callback() || freed;
  return freed;
}

void DeviceAllocator::note_out_of_memory(std::uint64_t bytes, StreamHandle stream) {
  std::vector<FailedRequests::Observer> observers;
  FailedRequest failed{device_, bytes, stream, {}};
  {
    const std::scoped_lock lock(lock_);
    ++statistics_.ooms;
    // PyTorch's allocator has waited for everything by now, and counts it as free.
    if (!deferred_.empty() && !captures() &&
        driver_.device_synchronize(device_) == DriverStatus::ok) {
      deferred_.poll();  // streams of other devices go on
    }
    if (const PoolIndex pool = pools_.of(stream); pool != 0) failed.pool = pools_.at(pool).id;
    failures_.note(failed);
    if (log_.is_on()) {
      MemInfo left;
      if (driver_.mem_info(device_, left) != DriverStatus::ok) left = {};
      log_.record(AllocatorEvent::Kind::out_of_memory, left.free_bytes, bytes, stream, failed.pool);
    }
    observers = failures_.observers();
  }
  for (const auto& observer : observers) observer(failed);
}

void DeviceAllocator::add_free_memory_callback(std::function<bool()> callback) {
  const std::scoped_lock lock(lock_);
  failures_.add_callback(std::move(callback));
}

void DeviceAllocator::add_out_of_memory_observer(
    std::function<void(const FailedRequest&)> observer) {
  const std::scoped_lock lock(lock_);
  failures_.add_observer(std::move(observer));
}

FailedRequest DeviceAllocator::last_failed_request() const {
  const std::scoped_lock lock(lock_);
  return failures_.last();
}

Status DeviceAllocator::alloc_locked(std::uint64_t bytes, std::uint64_t rounded_bytes,
                                     StreamHandle stream, DeviceAddress& address, Usage* usage,
                                     bool last_resort) {
  if (!deferred_.empty() && !captures()) [[unlikely]]
    deferred_.poll();
  std::uint64_t wanted = wanted_bytes(bytes, rounded_bytes);
  if (check_ != nullptr && wanted <= kMostBytes) [[unlikely]] {
    if (!captures() && check_->fence().take_away_freed()) note_memory();
    if (alloc_behind_fence(bytes, stream, address, usage)) return Status::ok;
    if (pools_.of(stream) == 0) {
      wanted = std::max(wanted, bytes + check_->behind_bytes()) + check_->before_bytes();
    }
  }
  if (wanted > kMostBytes) {
    failures_.explain("asked for " + format_bytes(bytes) + ", more than any device has");
    return Status::out_of_memory;
  }
  const Unit units = units_of(wanted);
  const std::uint64_t rounded = std::uint64_t{units} * kUnitBytes;
  Request request{&main_, main_.heap.streams().number_of(stream), units};
  const auto allocated = static_cast<std::uint64_t>(statistics_.allocated_bytes());
  const auto peak = static_cast<std::uint64_t>(statistics_.peak_allocated_bytes());
  const Demand demand{std::max(peak, allocated + rounded),
                      static_cast<std::uint64_t>(statistics_.volume_bytes())};
  const auto place = [&] {
    if (pools_.active()) [[unlikely]] {
      return place_in_begun_pool(stream, demand, request);
    }
    return main_.heap.place(units, request.owner, demand);
  };
  if (last_resort) main_.heap.keep_headroom(false);
  DeviceHeap::Placed placed = place();
  const auto may_go_on = [&] {
    const bool failed =
        placed.status == Status::out_of_memory || placed.status == Status::driver_error;
    return failed && request.arena == &main_;
  };
  if (may_go_on() && open_pools(units)) placed = place();
  if (last_resort) main_.heap.keep_headroom(true);
  if (may_go_on() && last_resort) {
    const DeviceHeap::Placed found =
        main_.heap.place_in_spill(request.units, request.owner, demand);
    if (found.status == Status::ok) placed = found;
  }
  if (placed.status != Status::ok) {
    failures_.explain(describe_failure(bytes, request, placed));
    note_memory();
    return placed.status;
  }
  begin_block(request, placed, bytes, usage);
  address = placed.address + request.arena->before_bytes(request.owner);
  return Status::ok;
}

Status DeviceAllocator::free(DeviceAddress address, Usage* usage) {
  if (address == 0) return Status::ok;
  if (check_ != nullptr) [[unlikely]] {
    Status status = Status::ok;
    {
      const std::scoped_lock lock(lock_);
      status = free_locked(address, usage);
    }
    tell_mistakes();
    return status;
  }
  const std::scoped_lock lock(lock_);
  return free_locked(address, usage);
}

inline Status DeviceAllocator::free_locked(DeviceAddress address, Usage* usage) {
  Arena* arena = &main_;
  BlockId id = main_.take(address);
  if (id == 0 && !sourced_.empty()) {
    const Found found = find(address);
    arena = found.arena;
    id = arena->take(address);
  }
  if (id == 0) return free_behind_fence(address, usage);
  const Block& block = arena->heap.blocks()[id];
  std::uint64_t bytes = block.size * kUnitBytes;
  if (check_ != nullptr) bytes -= block.extra;
  if (!pinned_.empty() && hold_if_pinned(*arena, address, id)) [[unlikely]] {
    if (usage != nullptr) *usage = usage_with(bytes);
    return Status::ok;
  }
  free_block(*arena, id);
  if (usage != nullptr) *usage = usage_with(bytes);
  return Status::ok;
}

DeviceAllocator::Found DeviceAllocator::find(DeviceAddress address) {
  Found found{&main_, 0};
  for_each_arena([&](Arena& arena) {
    if (found.id != 0) return;
    found = {&arena, arena.find(address)};
  });
  return found;
}

Status DeviceAllocator::record_stream(DeviceAddress address, const DeviceStream& stream) {
  if (address == 0) return Status::ok;
  const std::scoped_lock lock(lock_);
  const Found found = find(address);
  if (found.id == 0) {
    Fence::Block* const fenced = fenced_at(address);
    if (fenced == nullptr) return Status::invalid_argument;
    if (stream.device != device_) fenced->other_devices.push_back(stream.device);
    return Status::ok;
  }
  Block& block = found.arena->heap.blocks()[found.id];
  block.owner = found.arena->heap.owner_with_use(block.owner, stream);
  return Status::ok;
}

void DeviceAllocator::after_free(Arena& arena, Owner owner, std::uint64_t bytes) {
  note_pool_free(arena.heap.streams().sets().pool_of(owner), bytes);
  keep_soft_limit();
}

void DeviceAllocator::keep_soft_limit() {
  if (restores_) return;
  DeviceHeap& heap = main_.heap;
  const auto free_bytes = [&] { return heap.home().free_units() * kUnitBytes; };
  const std::uint64_t before = heap.reserved_bytes();
  if (!soft_limit_.asks(before, free_bytes())) return;
  (void)heap.trim(soft_limit_.bytes());
  ++statistics_.syncs;
  note_memory();
  soft_limit_.note_given_back(before, heap.reserved_bytes(), free_bytes(), heap.page_bytes());
}

void DeviceAllocator::defer_if_used(const Arena& arena, const Block& block) {
  const StreamLedger& streams = arena.heap.streams();
  const auto members = streams.sets().members(block.owner);
  if (members.size() < 2 || captures()) return;
  std::vector<DeviceStream> uses;
  for (const StreamIndex stream : members.subspan(1)) uses.push_back(streams.sets().stream(stream));
  const auto bytes = static_cast<std::int64_t>(block.size * kUnitBytes);
  const bool small = block.small;
  const std::int64_t requested = bytes - block.extra;
  statistics_.on_deferred(small, 1, bytes, requested);
  deferred_.add(uses, [this, small, bytes, requested] {
    statistics_.on_deferred(small, -1, -bytes, -requested);
  });
}

}  // namespace gapless
