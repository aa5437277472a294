#include "allocator/device/device_allocator.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

// Larger requests cannot be meant: they pass what 32-bit units reach.
constexpr std::uint64_t kMostBytes = std::uint64_t{UINT32_MAX} / 2 * kUnitBytes;

}  // namespace

DeviceAllocator::DeviceAllocator(Driver& driver, DeviceIndex device,
                                 const DeviceProperties& properties, const Options& options)
    : driver_(driver),
      device_(device),
      properties_(properties),
      heap_(driver, device, properties, options) {}

DeviceAllocator::~DeviceAllocator() {
  if (live_.size() == 0) (void)heap_.release_all();
}

Status DeviceAllocator::alloc(std::uint64_t bytes, StreamHandle stream, DeviceAddress& address) {
  if (bytes == 0) {
    address = 0;
    return Status::ok;
  }
  Status status = try_alloc(bytes, stream, address);
  if (status != Status::out_of_memory) [[likely]]
    return status;
  if (bytes <= kMostBytes && free_some_memory()) status = try_alloc(bytes, stream, address);
  if (status == Status::out_of_memory) note_out_of_memory(bytes, stream);
  return status;
}

bool DeviceAllocator::free_some_memory() {
  std::vector<std::function<bool()>> callbacks;
  {
    const std::scoped_lock lock(lock_);
    callbacks = free_memory_callbacks_;
  }
  bool freed = false;
  for (const auto& callback : callbacks) freed = callback() || freed;
  return freed;
}

void DeviceAllocator::note_out_of_memory(std::uint64_t bytes, StreamHandle stream) {
  std::vector<std::function<void(const FailedRequest&)>> observers;
  FailedRequest failed{device_, bytes, stream, {}};
  {
    const std::scoped_lock lock(lock_);
    ++statistics_.ooms;
    if (const PoolIndex pool = pools_.of(stream); pool != 0) failed.pool = pools_.at(pool).id;
    last_failed_ = failed;
    observers = out_of_memory_observers_;
  }
  for (const auto& observer : observers) observer(failed);
}

void DeviceAllocator::add_free_memory_callback(std::function<bool()> callback) {
  const std::scoped_lock lock(lock_);
  free_memory_callbacks_.push_back(std::move(callback));
}

void DeviceAllocator::add_out_of_memory_observer(
    std::function<void(const FailedRequest&)> observer) {
  const std::scoped_lock lock(lock_);
  out_of_memory_observers_.push_back(std::move(observer));
}

FailedRequest DeviceAllocator::last_failed_request() const {
  const std::scoped_lock lock(lock_);
  return last_failed_;
}

Status DeviceAllocator::try_alloc(std::uint64_t bytes, StreamHandle stream,
                                  DeviceAddress& address) {
  const std::scoped_lock lock(lock_);
  if (bytes > kMostBytes) {
    last_failure_ = "asked for " + format_bytes(bytes) + ", more than any device has";
    return Status::out_of_memory;
  }
  const auto units = static_cast<Unit>((bytes + kUnitBytes - 1) / kUnitBytes);
  const std::uint64_t rounded = std::uint64_t{units} * kUnitBytes;
  Owner owner = heap_.streams().number_of(stream);
  const auto demand = [&] {
    const auto allocated = static_cast<std::uint64_t>(statistics_.allocated_bytes());
    const auto peak = static_cast<std::uint64_t>(statistics_.peak_allocated_bytes());
    return Demand{std::max(peak, allocated + rounded),
                  static_cast<std::uint64_t>(statistics_.volume_bytes())};
  };
  DeviceHeap::Placed placed;
  if (pools_.active()) [[unlikely]] {
    placed = place(units, stream, demand(), owner);
  } else {
    placed = heap_.place(units, owner, demand);
  }
  if (placed.status == Status::out_of_memory && pools_.any()) {
    placed = place_from_pools(units, owner, demand());
  }
  if (placed.status != Status::ok) {
    last_failure_ = describe_failure(bytes, owner, placed.status);
    note_memory();
    return placed.status;
  }
  note_block(placed, owner, rounded, bytes);
  if (heap_.changes() != noted_changes_) [[unlikely]]
    note_memory();
  address = placed.address;
  return Status::ok;
}

Status DeviceAllocator::free(DeviceAddress address) {
  if (address == 0) return Status::ok;
  const std::scoped_lock lock(lock_);
  const BlockId id =
      live_.take(address, [&](BlockId block) { return heap_.address_of(block) == address; });
  if (id == 0) return Status::invalid_argument;
  free_block(id);
  return Status::ok;
}

Status DeviceAllocator::record_stream(DeviceAddress address, StreamHandle stream) {
  if (address == 0) return Status::ok;
  const std::scoped_lock lock(lock_);
  const BlockId id =
      live_.find(address, [&](BlockId block) { return heap_.address_of(block) == address; });
  if (id == 0) return Status::invalid_argument;
  Block& block = heap_.blocks()[id];
  block.owner = heap_.owner_with_use(block.owner, stream);
  return Status::ok;
}

// --- private pools -------------------------------------------------------------------------------

DeviceHeap::Placed DeviceAllocator::place(Unit units, StreamHandle stream, const Demand& demand,
                                          Owner& owner) {
  const PoolIndex index = pools_.of(stream);
  if (index == 0) return heap_.place(units, owner, [&] { return demand; });
  PrivatePool& pool = pools_.at(index);
  if (heap_.is_asleep(index)) return {Status::invalid_argument, 0, 0};
  const bool capturing = heap_.streams().is_capturing(stream);
  pool.captured = pool.captured || capturing;
  const Owner general = owner;
  owner = heap_.owner_in_pool(general, index);
  const DeviceHeap::Placed placed = heap_.place_in_pool(units, owner, general, capturing, demand);
  if (placed.status == Status::ok) {
    ++pool.live_blocks;
    pool.live_bytes += units * kUnitBytes;
  }
  return placed;
}

DeviceHeap::Placed DeviceAllocator::place_from_pools(Unit units, Owner owner,
                                                     const Demand& demand) {
  bool opened = false;
  pools_.for_each([&](const PrivatePool& pool) {
    if (!pool.use_on_oom || pool.captured) return;
    heap_.open_pool(pool.index);
    opened = true;
  });
  if (!opened || heap_.streams().sets().pool_of(owner) != 0) return {Status::out_of_memory, 0, 0};
  return heap_.place(units, owner, [&] { return demand; });
}

void DeviceAllocator::note_pool_free(Owner owner, std::uint64_t bytes) {
  const PoolIndex index = heap_.streams().sets().pool_of(owner);
  if (index == 0) return;
  PrivatePool& pool = pools_.at(index);
  --pool.live_blocks;
  pool.live_bytes -= bytes;
  give_up_if_unused(pool);
}

void DeviceAllocator::give_up_if_unused(const PrivatePool& pool) {
  if (pool.users != 0 || pool.live_blocks != 0 || pools_.is_begun(pool.index)) return;
  saved_.erase(pool.index);
  heap_.give_up_pool(pool.index, pool.captured);
  note_memory();  // pages that were asleep are gone
  pools_.forget(pool.index);
}

PoolId DeviceAllocator::pool_id(Owner owner) const {
  const PoolIndex index = heap_.streams().sets().pool_of(owner);
  // A pool that was given up after captures is nobody's any more.
  return index == 0 || !pools_.has(index) ? PoolId{} : pools_.at(index).id;
}

Status DeviceAllocator::retain_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  make_pool(id);
  return Status::ok;
}

void DeviceAllocator::make_pool(PoolId id) {
  for (const PoolIndex emptied : heap_.take_emptied_pools()) pools_.reuse(emptied);
  pools_.retain(id);
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
  heap_.prepare_capture();
  make_pool(id);
  pools_.begin(id, std::move(filter));
  heap_.streams().watch_captures(true);
  return Status::ok;
}

Status DeviceAllocator::end_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  if (!pools_.end(id)) return Status::invalid_argument;
  const PrivatePool& pool = *pools_.find(id);
  if (pool.captured && !heap_.streams().any_capturing()) heap_.unite_pool(pool.index);
  heap_.streams().watch_captures(pools_.active());
  give_up_if_unused(pool);
  return Status::ok;
}

Status DeviceAllocator::set_pool_use_on_oom(PoolId id, bool use) {
  const std::scoped_lock lock(lock_);
  PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr) return Status::invalid_argument;
  pool->use_on_oom = use;
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

PoolState DeviceAllocator::checkpoint_pool(PoolId id) const {
  const std::scoped_lock lock(lock_);
  PoolState state{id, {}};
  const PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr) return state;
  for_each_block_of(pool->index, [&](BlockId block, const Block& facts) {
    state.blocks.push_back(
        {heap_.address_of(block), heap_.place_of(block), facts.owner, facts.extra});
  });
  return state;
}

Status DeviceAllocator::restore_pool(const PoolState& state, PoolDelta& delta) {
  const std::scoped_lock lock(lock_);
  PrivatePool* const pool = pools_.find(state.id);
  if (pool == nullptr) return Status::invalid_argument;
  // By address: what stays is in both.
  std::map<DeviceAddress, const PoolState::BlockState*> wanted;
  for (const PoolState::BlockState& block : state.blocks) wanted[block.address] = &block;
  std::vector<BlockId> leaving;
  for_each_block_of(pool->index, [&](BlockId id, const Block& block) {
    const auto found = wanted.find(heap_.address_of(id));
    if (found != wanted.end() && found->second->place.spot.size == block.size) {
      wanted.erase(found);
    } else {
      leaving.push_back(id);
    }
  });
  for (const auto& [address, block] : wanted) {
    if (!heap_.could_be_at(block->place, pool->index, leaving)) return Status::invalid_argument;
  }
  ++pool->users;  // it stays while it has no block for a moment
  for (const BlockId id : leaving) {
    delta.freed.push_back(heap_.address_of(id));
    free_block(live_.take(delta.freed.back(), [id](BlockId block) { return block == id; }));
  }
  heap_.unite_pool(pool->index);
  for (const auto& [address, block] : wanted) {
    const DeviceHeap::Placed placed = heap_.place_at(block->place, block->owner);
    const std::uint64_t bytes = block->place.spot.size * kUnitBytes;
    ++pool->live_blocks;
    pool->live_bytes += bytes;
    note_block(placed, block->owner, bytes, bytes - block->slack_bytes);
    delta.allocated.push_back(address);
  }
  --pool->users;
  return Status::ok;
}

Status DeviceAllocator::sleep_pool(PoolId id, bool save) {
  const std::scoped_lock lock(lock_);
  const PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr || heap_.is_asleep(pool->index) || !heap_.uses_vmm()) {
    return Status::invalid_argument;
  }
  if (heap_.streams().any_capturing()) return Status::driver_error;
  std::vector<BlockId> blocks;
  for_each_block_of(pool->index, [&](BlockId block, const Block&) { blocks.push_back(block); });
  std::map<DeviceAddress, std::vector<unsigned char>> contents;
  if (save && driver_.device_synchronize(device_) != DriverStatus::ok) return Status::driver_error;
  for (const BlockId block : blocks) {
    if (!save) break;
    const DeviceAddress address = heap_.address_of(block);
    auto& bytes = contents[address];
    bytes.resize(heap_.blocks()[block].size * kUnitBytes);
    if (driver_.copy_to_host(device_, bytes.data(), address, bytes.size(), 0) != DriverStatus::ok) {
      return Status::driver_error;
    }
  }
  const DriverStatus status = heap_.sleep(pool->index, blocks);
  ++statistics_.syncs;
  saved_[pool->index] = std::move(contents);
  // Halfway, some pages were other ones for a moment.
  if (!heap_.is_asleep(pool->index)) (void)restore_contents(pool->index);
  note_memory();
  return status == DriverStatus::ok ? Status::ok : Status::driver_error;
}

Status DeviceAllocator::wake_pool(PoolId id) {
  const std::scoped_lock lock(lock_);
  const PrivatePool* const pool = pools_.find(id);
  if (pool == nullptr) return Status::invalid_argument;
  DriverStatus status = heap_.wake(pool->index);
  note_memory();
  if (status == DriverStatus::ok) status = restore_contents(pool->index);
  if (status == DriverStatus::ok) return Status::ok;
  return status == DriverStatus::out_of_memory ? Status::out_of_memory : Status::driver_error;
}

DriverStatus DeviceAllocator::restore_contents(PoolIndex pool) {
  DriverStatus status = DriverStatus::ok;
  auto& contents = saved_[pool];
  while (status == DriverStatus::ok && !contents.empty()) {
    const auto& [address, bytes] = *contents.begin();
    // A block that was freed meanwhile has nothing to be brought back.
    const DeviceAddress at = address;
    const BlockId live = live_.find(at, [&](BlockId b) { return heap_.address_of(b) == at; });
    if (live != 0) status = driver_.copy_to_device(device_, at, bytes.data(), bytes.size(), 0);
    if (status == DriverStatus::ok) contents.erase(contents.begin());
  }
  if (contents.empty()) saved_.erase(pool);
  return status;
}

std::vector<DeviceAddress> DeviceAllocator::pool_blocks(PoolId id) const {
  const std::scoped_lock lock(lock_);
  std::vector<DeviceAddress> blocks;
  if (const PrivatePool* const pool = pools_.find(id); pool != nullptr) {
    for_each_block_of(pool->index, [&](BlockId block, const Block& /*facts*/) {
      blocks.push_back(heap_.address_of(block));
    });
  }
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

// --- statistics and reports ----------------------------------------------------------------------

void DeviceAllocator::note_memory() {
  const auto reserved = static_cast<std::int64_t>(heap_.reserved_bytes());
  statistics_.set_reserved(
      reserved, static_cast<std::int64_t>(heap_.home().present_pages() * heap_.page_bytes()));
  statistics_.set_segments((reserved != 0 ? 1 : 0) + heap_.windows().count());
  noted_changes_ = heap_.changes();
}

std::string DeviceAllocator::describe_failure(std::uint64_t bytes, Owner owner,
                                              Status status) const {
  std::string text = "asked for " + format_bytes(bytes) + " on device " + std::to_string(device_);
  if (status == Status::invalid_argument) return text + "; the pool it would go to is asleep";
  if (status == Status::driver_error) {
    return text + "; the driver failed with " + to_string(heap_.last_driver_status());
  }
  text += "; " + format_bytes(static_cast<std::uint64_t>(statistics_.allocated_bytes())) +
          " allocated, " + format_bytes(heap_.reserved_bytes()) + " reserved";
  if (heap_.limit_bytes() != UINT64_MAX) {
    text += " (limit " + format_bytes(heap_.limit_bytes()) + ")";
  }
  return text + ", of which " + format_bytes(heap_.home().free_units() * kUnitBytes) +
         " free; the largest request that would fit without new memory is " +
         format_bytes(heap_.largest_request(owner) * kUnitBytes);
}

std::optional<std::uint64_t> DeviceAllocator::size_of(DeviceAddress address) const {
  const std::scoped_lock lock(lock_);
  const BlockId id =
      live_.find(address, [&](BlockId block) { return heap_.address_of(block) == address; });
  if (id == 0) return {};
  return heap_.blocks()[id].size * kUnitBytes;
}

Status DeviceAllocator::trim(std::uint64_t keep_bytes) {
  const std::scoped_lock lock(lock_);
  const Status status = heap_.trim(keep_bytes);
  ++statistics_.syncs;
  note_memory();
  return status;
}

void DeviceAllocator::set_limit_bytes(std::uint64_t bytes) {
  const std::scoped_lock lock(lock_);
  heap_.set_limit_bytes(bytes);
}

std::uint64_t DeviceAllocator::limit_bytes() const {
  const std::scoped_lock lock(lock_);
  return heap_.limit_bytes();
}

DeviceStatistics DeviceAllocator::read_statistics() const {
  DeviceStatistics statistics = statistics_.read(heap_.home().holes());
  statistics.num_device_alloc = static_cast<std::int64_t>(heap_.pages_created());
  statistics.num_device_free = static_cast<std::int64_t>(heap_.pages_released());
  statistics.num_alloc_retries = static_cast<std::int64_t>(heap_.counters().retries);
  return statistics;
}

DeviceStatistics DeviceAllocator::statistics() const {
  const std::scoped_lock lock(lock_);
  return read_statistics();
}

void DeviceAllocator::reset_peak_statistics() {
  const std::scoped_lock lock(lock_);
  statistics_.reset_peak();
  heap_.reset_hole_peak();
}

void DeviceAllocator::reset_accumulated_statistics() {
  const std::scoped_lock lock(lock_);
  statistics_.reset_accumulated(heap_.home().holes());
}

std::string DeviceAllocator::last_failure() const {
  const std::scoped_lock lock(lock_);
  return last_failure_;
}

HeapCounters DeviceAllocator::counters() const {
  const std::scoped_lock lock(lock_);
  return heap_.counters();
}

HeapReport DeviceAllocator::report() const {
  const std::scoped_lock lock(lock_);
  HeapReport report;
  report.device = device_;
  report.device_name = properties_.name;
  report.total_bytes = properties_.total_bytes;
  report.limit_bytes = heap_.limit_bytes();
  report.page_bytes = heap_.page_bytes();
  report.statistics = read_statistics();
  report.counters = heap_.counters();
  const StreamLedger& streams = heap_.streams();
  const auto stream_of = [&](Owner owner) {
    return streams.sets().members(owner).empty() ? StreamHandle{0} : streams.handle_of(owner);
  };
  heap_.home().for_each([&](BlockId, const Block& block) {
    if (block.state == BlockState::absent) return;
    BlockReport piece;
    piece.address = heap_.home_address(block.begin);
    piece.bytes = block.size * kUnitBytes;
    piece.stream = stream_of(block.owner);
    piece.pool = pool_id(block.owner);
    if (block.state == BlockState::live) {
      piece.kind = BlockReport::Kind::live;
      piece.requested_bytes = piece.bytes - block.extra;
    } else if (block.state == BlockState::lent) {
      piece.kind = BlockReport::Kind::lent;
    } else {
      piece.any_stream = streams.sets().members(block.owner).empty();
    }
    report.home.push_back(piece);
  });
  live_.for_each([&](BlockId id) {
    const Block& block = heap_.blocks()[id];
    if (block.state != BlockState::window) return;
    const std::uint64_t bytes = block.size * kUnitBytes;
    report.window_blocks.push_back({heap_.address_of(id), bytes, bytes - block.extra,
                                    stream_of(block.owner), pool_id(block.owner)});
  });
  std::sort(report.window_blocks.begin(), report.window_blocks.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  report.windows = heap_.windows().count();
  report.window_mapped_bytes = heap_.windows().mapped_pages() * heap_.page_bytes();
  for (const BlockReport& piece : report.home) {
    if (piece.kind != BlockReport::Kind::hole) continue;
    const std::uint64_t page = report.page_bytes;
    const DeviceAddress begin = align_up(piece.address, page);
    const DeviceAddress end = align_down(piece.address + piece.bytes, page);
    if (end > begin) report.free_page_bytes += end - begin;
  }
  return report;
}

void DeviceAllocator::validate() const {
  const std::scoped_lock lock(lock_);
  heap_.validate();
  const auto check = [](bool holds, const char* rule) {
    if (!holds) throw std::logic_error(std::string("device allocator: ") + rule);
  };
  std::uint64_t lent_units = 0;
  std::uint64_t live_units = 0;
  std::size_t live_blocks = 0;
  heap_.home().for_each([&](BlockId, const Block& block) {
    if (block.state == BlockState::lent) lent_units += block.size;
    if (block.state == BlockState::live) {
      live_units += block.size;
      ++live_blocks;
    }
  });
  std::uint64_t window_units = 0;
  std::uint64_t requested = 0;
  std::size_t window_blocks = 0;
  live_.for_each([&](BlockId id) {
    const Block& block = heap_.blocks()[id];
    requested += block.size * kUnitBytes - block.extra;
    check(block.state == BlockState::live || block.state == BlockState::window,
          "a live address leads to no live block");
    if (block.state != BlockState::window) return;
    ++window_blocks;
    window_units += block.size;
    std::vector<UnitRange> lent;
    for (BlockId next = block.link_next; next != 0; next = heap_.blocks()[next].link_next) {
      const Block& piece = heap_.blocks()[next];
      check(piece.state == BlockState::lent, "a window block's page is not lent");
      if (!lent.empty() && lent.back().begin + lent.back().size == piece.begin) {
        lent.back().size += piece.size;
      } else {
        lent.push_back({piece.begin, piece.size});
      }
    }
    const auto expected = heap_.windows().home_ranges({block.prev, block.begin, block.size});
    check(lent.size() == expected.size(), "a window block does not own its pages");
    for (std::size_t i = 0; i < lent.size(); ++i) {
      check(lent[i].begin == expected[i].begin && lent[i].size == expected[i].size,
            "a window block owns other pages than it lies on");
    }
  });
  check(live_.size() == live_blocks + window_blocks, "a live block nobody can free");
  check(lent_units == window_units, "pages are lent to nobody");
  const DeviceStatistics statistics = read_statistics();
  const auto units_now = static_cast<std::int64_t>((live_units + window_units) * kUnitBytes);
  check(statistics.allocated_bytes.all.current == units_now, "allocated bytes do not add up");
  check(statistics.requested_bytes.all.current == static_cast<std::int64_t>(requested),
        "requested bytes do not add up");
  check(statistics.allocation.all.current == static_cast<std::int64_t>(live_.size()),
        "the number of allocations is wrong");
  const auto free_now = static_cast<std::int64_t>(heap_.home().free_units() * kUnitBytes);
  const auto present = static_cast<std::int64_t>(heap_.home().present_pages() * heap_.page_bytes());
  check(present == units_now + free_now, "present memory is neither live nor free");
  const auto asleep = static_cast<std::int64_t>(heap_.pages_asleep() * heap_.page_bytes());
  check(statistics.reserved_bytes.all.current >= present - asleep,
        "reserved is less than what is present");
}

}  // namespace gapless
