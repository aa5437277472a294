// DeviceAllocator: statistics, reports, and whether all is as it should be.
#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"

namespace gapless {

void DeviceAllocator::note_memory() {
  std::uint64_t reserved = 0;
  std::uint64_t present = 0;
  std::int64_t segments = 0;
  for_each_arena([&](const Arena& arena) {
    reserved += arena.heap.reserved_bytes();
    present += arena.heap.home().present_pages() * arena.heap.page_bytes();
    segments += (arena.heap.reserved_bytes() != 0 ? 1 : 0) + arena.heap.windows().count();
  });
  for (const auto& sourced : spent_) reserved += sourced->arena.heap.reserved_bytes();
  if (check_ != nullptr) {
    const std::uint64_t fenced = check_->fence().reserved_bytes();
    reserved += fenced;
    present += fenced;
    segments += static_cast<std::int64_t>(check_->fence().live());
  }
  statistics_.set_reserved(static_cast<std::int64_t>(reserved), static_cast<std::int64_t>(present));
  statistics_.set_segments(segments);
  spill_watch_.note(main_.heap.spilled_bytes());
  noted_changes_ = main_.heap.changes();
}

SpillReport DeviceAllocator::read_spill() const {
  SpillReport report;
  report.possible = properties_.has_vmm && properties_.can_map_host;
  report.limit_bytes = main_.heap.can_spill() ? options_.spill : 0;
  report.bytes = main_.heap.spilled_bytes();
  spill_watch_.tell(report);
  if (report.bytes == 0) return report;
  report.live_bytes = report.bytes;
  main_.heap.home().for_each([&](BlockId, const Block& block) {
    if (block.state != BlockState::hole) return;
    // A hole lies in host memory as a whole or not at all.
    if (main_.heap.is_spilled(block.begin)) report.live_bytes -= block.size * kUnitBytes;
  });
  return report;
}

SpillReport DeviceAllocator::spill() const {
  const std::scoped_lock lock(lock_);
  return read_spill();
}

std::string DeviceAllocator::describe_failure(std::uint64_t bytes, const Request& request,
                                              const DeviceHeap::Placed& placed) const {
  std::string text = "asked for " + format_bytes(bytes) + " on device " + std::to_string(device_);
  if (placed.status == Status::invalid_argument) {
    return text + "; the pool it would go to is asleep";
  }
  if (placed.status == Status::driver_error) {
    return text + "; the driver failed with " + to_string(placed.refusal);
  }
  const Arena& arena = *request.arena;
  if (&arena != &main_) {
    return text + " from a pool's own allocator, which gave none; " +
           format_bytes(arena.heap.home().free_units() * kUnitBytes) + " of the pool are free";
  }
  if (options_.spill != 0 && !main_.heap.can_spill()) {
    text += "; spill is set, but the device cannot map host memory";
  }
  text += "; " + format_bytes(static_cast<std::uint64_t>(statistics_.allocated_bytes())) +
          " allocated, " + format_bytes(main_.heap.reserved_bytes()) + " reserved";
  if (main_.heap.limit_bytes() != UINT64_MAX) {
    text += " (limit " + format_bytes(main_.heap.limit_bytes()) + ")";
  }
  return text + ", of which " + format_bytes(main_.heap.home().free_units() * kUnitBytes) +
         " free; the largest request that would fit without new memory is " +
         format_bytes(main_.heap.largest_request(request.owner) * kUnitBytes);
}

std::optional<std::uint64_t> DeviceAllocator::size_of(DeviceAddress address) const {
  const std::optional<BlockFacts> facts = find_block(address);
  return facts ? std::optional(facts->bytes) : std::nullopt;
}

BlockFacts DeviceAllocator::facts_of(const Arena& arena, BlockId id) const {
  const Block& block = arena.heap.blocks()[id];
  const std::uint64_t all = block.size * kUnitBytes;
  return {all - arena.before_bytes(block.owner), all - block.extra, stream_of(arena, block.owner),
          pool_id(arena.heap.streams().sets().pool_of(block.owner))};
}

std::optional<BlockFacts> DeviceAllocator::find_block(DeviceAddress address) const {
  const std::scoped_lock lock(lock_);
  std::optional<BlockFacts> facts;
  for_each_arena([&](const Arena& arena) {
    const BlockId id = arena.find(address);
    if (id != 0) facts = facts_of(arena, id);
  });
  if (const Fence::Block* const fenced = fenced_at(address); fenced != nullptr) {
    facts = {fenced->facts.bytes, fenced->facts.requested_bytes, fenced->facts.stream, {}, true};
  }
  return facts;
}

Status DeviceAllocator::add_peer(DeviceIndex peer) {
  const std::scoped_lock lock(lock_);
  DriverStatus status = main_.heap.add_peer(peer);
  if (status == DriverStatus::ok && check_ != nullptr) status = check_->fence().add_peer(peer);
  return status == DriverStatus::ok ? Status::ok : Status::driver_error;
}

void DeviceAllocator::set_mapping_observer(std::function<void(const MappingChange&)> observer) {
  const std::scoped_lock lock(lock_);
  mapping_observer_ = std::move(observer);
  observe_mappings();
}

Status DeviceAllocator::trim(std::uint64_t keep_bytes) {
  const std::scoped_lock lock(lock_);
  Status status = Status::ok;
  drop_spent();
  if (!main_.heap.streams().any_capturing()) {
    // What is free in a pool that nobody uses is everyone's, once the device was waited for.
    pools_.for_each([&](const PrivatePool& pool) {
      if (pool.users != 0 || pools_.is_begun(pool.index)) return;
      DeviceHeap& heap = arena_of(pool.index).heap;
      if (heap.pools().is_asleep(pool.index)) return;
      if (!pool.captured || heap.streams().synchronize() == DriverStatus::ok) {
        heap.pools().open(pool.index);
      }
    });
  }
  if (check_ != nullptr && !captures()) (void)check_->fence().take_away_freed();
  for_each_arena([&](Arena& arena) {
    if (arena.heap.trim(keep_bytes) != DriverStatus::ok) status = Status::driver_error;
  });
  ++statistics_.syncs;
  deferred_.finish();
  note_memory();
  return status;
}

Status DeviceAllocator::trim_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  drop_spent();
  const PrivatePool* const pool = pools_.find(id);
  Status status = Status::ok;
  if (pool != nullptr && pool->users == 0 && !pool->captured && !pools_.is_begun(pool->index) &&
      !main_.heap.pools().is_asleep(pool->index)) {
    DeviceHeap& heap = arena_of(pool->index).heap;
    heap.pools().open(pool->index);
    if (&heap != &main_.heap && heap.trim(0) != DriverStatus::ok) status = Status::driver_error;
  }
  note_memory();
  return status;
}

void DeviceAllocator::set_limit_bytes(std::uint64_t bytes) {
  const std::scoped_lock lock(lock_);
  for_each_arena([bytes](Arena& arena) { arena.heap.set_limit_bytes(bytes); });
  if (check_ != nullptr) check_->fence().memory().set_limit_bytes(bytes);
}

void DeviceAllocator::set_soft_limit_bytes(std::uint64_t bytes) {
  const std::scoped_lock lock(lock_);
  soft_limit_.set(bytes);
  main_.heap.set_soft_limit_bytes(bytes);
  watches_frees_ = pools_.any() || soft_limit_.is_set();
}

std::uint64_t DeviceAllocator::limit_bytes() const {
  const std::scoped_lock lock(lock_);
  return main_.heap.limit_bytes();
}

HoleTally DeviceAllocator::holes() const {
  HoleTally sum;
  for_each_arena([&](const Arena& arena) {
    const HoleTally& tally = arena.heap.home().holes();
    sum.current += tally.current;
    sum.peak += tally.peak;
    sum.made += tally.made;
  });
  return sum;
}

DeviceStatistics DeviceAllocator::read_statistics() const {
  DeviceStatistics statistics = statistics_.read(holes());
  for_each_arena([&](const Arena& arena) {
    statistics.num_device_alloc += static_cast<std::int64_t>(arena.heap.pages_created());
    statistics.num_device_free += static_cast<std::int64_t>(arena.heap.pages_released());
    statistics.num_alloc_retries += static_cast<std::int64_t>(arena.heap.counters().retries);
  });
  if (check_ != nullptr) {
    const PhysicalMemory& fenced = check_->fence().memory();
    statistics.num_device_alloc += static_cast<std::int64_t>(fenced.created());
    statistics.num_device_free += static_cast<std::int64_t>(fenced.released());
  }
  return statistics;
}

DeviceStatistics DeviceAllocator::statistics() const {
  const std::scoped_lock lock(lock_);
  return read_statistics();
}

void DeviceAllocator::reset_peak_statistics() {
  const std::scoped_lock lock(lock_);
  statistics_.reset_peak();
  for_each_arena([](Arena& arena) { arena.heap.reset_hole_peak(); });
}

void DeviceAllocator::reset_accumulated_statistics() {
  const std::scoped_lock lock(lock_);
  statistics_.reset_accumulated(holes());
  // Heaps count theirs from the beginning.
  for_each_arena([&](const Arena& arena) {
    statistics_.retries -= static_cast<std::int64_t>(arena.heap.counters().retries);
  });
}

std::string DeviceAllocator::last_failure() const {
  const std::scoped_lock lock(lock_);
  return failures_.why();
}

HeapCounters DeviceAllocator::counters() const {
  const std::scoped_lock lock(lock_);
  return main_.heap.counters();
}

HeapReport DeviceAllocator::report() const {
  const std::scoped_lock lock(lock_);
  HeapReport report;
  report.device = device_;
  report.device_name = properties_.name;
  report.total_bytes = properties_.total_bytes;
  report.limit_bytes = main_.heap.limit_bytes();
  report.page_bytes = main_.heap.page_bytes();
  report.statistics = read_statistics();
  report.counters = main_.heap.counters();
  report.spill = read_spill();
  report.owed_to_pools = read_owed_to_pools();
  for_each_arena([&](const Arena& arena) { report_arena(arena, report); });
  if (check_ != nullptr) report_checks(report);
  const auto by_address = [](const auto& a, const auto& b) { return a.address < b.address; };
  std::sort(report.home.begin(), report.home.end(), by_address);
  std::sort(report.window_blocks.begin(), report.window_blocks.end(), by_address);
  report.windows = main_.heap.windows().count();
  report.window_mapped_bytes = main_.heap.windows().mapped_pages() * main_.heap.page_bytes();
  report.window_addresses = main_.heap.window_addresses();
  for (const BlockReport& piece : report.home) report.free_page_bytes += piece.free_page_bytes;
  return report;
}

void DeviceAllocator::report_arena(const Arena& arena, HeapReport& report) const {
  const StreamLedger& streams = arena.heap.streams();
  std::set<BlockId> held;
  pinned_.for_each_held(arena, [&](BlockId id) { held.insert(id); });
  arena.heap.home().for_each([&](BlockId id, const Block& block) {
    if (block.state == BlockState::absent) return;
    BlockReport piece;
    piece.address = arena.heap.home_address(block.begin);
    piece.bytes = block.size * kUnitBytes;
    piece.stream = stream_of(arena, block.owner);
    piece.pool = pool_id(streams.sets().pool_of(block.owner));
    piece.spilled = arena.heap.is_spilled(block.begin);
    if (block.state == BlockState::live) {
      piece.kind = held.contains(id) ? BlockReport::Kind::held : BlockReport::Kind::live;
      piece.requested_bytes = piece.bytes - block.extra;
      piece.given = arena.address_of(id);
    } else if (block.state == BlockState::lent) {
      piece.kind = BlockReport::Kind::lent;
    } else {
      piece.any_stream = streams.sets().members(block.owner).empty();
      piece.free_page_bytes = arena.heap.home().in_free_pages(block) * kUnitBytes;
    }
    report.home.push_back(piece);
  });
  const auto in_window = [&](BlockId id) {
    const Block& block = arena.heap.blocks()[id];
    if (block.state != BlockState::window) return;
    const std::uint64_t bytes = block.size * kUnitBytes;
    report.window_blocks.push_back({held.contains(id), false, arena.heap.address_of(id),
                                    arena.address_of(id), bytes, bytes - block.extra,
                                    stream_of(arena, block.owner),
                                    pool_id(streams.sets().pool_of(block.owner))});
  };
  arena.live.for_each(in_window);
  std::for_each(held.begin(), held.end(), in_window);
}

void DeviceAllocator::validate() const {
  const std::scoped_lock lock(lock_);
  const auto check = [](bool holds, const char* rule) {
    if (!holds) throw std::logic_error(std::string("device allocator: ") + rule);
  };
  ArenaSums sums;
  std::size_t live = 0;
  std::uint64_t held_bytes = 0;
  for_each_arena([&](const Arena& arena) {
    std::vector<BlockId> held;
    pinned_.for_each_held(arena, [&](BlockId id) {
      held.push_back(id);
      held_bytes += arena.heap.blocks()[id].size * kUnitBytes;
    });
    const ArenaSums one = arena.validate(held);
    live += arena.live.size();
    sums.used_bytes += one.used_bytes;
    sums.requested_bytes += one.requested_bytes;
    sums.free_bytes += one.free_bytes;
    sums.present_bytes += one.present_bytes;
    sums.elsewhere_bytes += one.elsewhere_bytes;
  });
  if (check_ != nullptr) {
    check_->fence().for_each([&](const Fence::Block& block) {
      sums.present_bytes += block.mapped_bytes;
      if (block.freed) {
        sums.free_bytes += block.mapped_bytes;
      } else {
        sums.used_bytes += block.mapped_bytes;
        sums.requested_bytes += block.facts.requested_bytes;
      }
    });
    live += check_->fence().live();
  }
  const DeviceStatistics statistics = read_statistics();
  const auto is = [](const PoolStat& stat, std::uint64_t value) {
    return stat.all.current == static_cast<std::int64_t>(value);
  };
  check(is(statistics.allocated_bytes, sums.used_bytes - held_bytes),
        "allocated bytes do not add up");
  check(statistics.requested_bytes.all.current >= static_cast<std::int64_t>(sums.requested_bytes),
        "requested bytes do not add up");
  check(is(statistics.allocation, live), "the number of allocations is wrong");
  check(statistics.active_bytes.all.current >=
            statistics.allocated_bytes.all.current + static_cast<std::int64_t>(held_bytes),
        "held bytes are not active");
  check(sums.present_bytes == sums.used_bytes + sums.free_bytes,
        "present memory is neither live nor free");
  check(statistics.reserved_bytes.all.current >=
            static_cast<std::int64_t>(sums.present_bytes - sums.elsewhere_bytes),
        "reserved is less than what is present");
}

}  // namespace gapless
