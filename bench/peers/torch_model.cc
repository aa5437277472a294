#include "bench/peers/torch_model.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "allocator/base/bytes.h"

namespace gapless::bench {
namespace {

// PyTorch's constants (c10/core and c10/cuda, 2.10/2.11), by their names there.
constexpr std::uint64_t kMinBlockSize = 512;
constexpr std::uint64_t kSmallSize = MiB;
constexpr std::uint64_t kSmallBuffer = 2 * MiB;
constexpr std::uint64_t kLargeBuffer = 20 * MiB;
constexpr std::uint64_t kMinLargeAlloc = 10 * MiB;
constexpr std::uint64_t kRoundLarge = 2 * MiB;

// The most by which a block that is never split may be larger than the request it serves.
constexpr std::uint64_t kMostNotSplit = kLargeBuffer;

std::uint64_t round_size(std::uint64_t bytes, std::uint64_t divisions) {
  if (bytes < kMinBlockSize) return kMinBlockSize;
  if (divisions <= 1 || bytes <= kMinBlockSize * divisions) return align_up(bytes, kMinBlockSize);
  return align_up(bytes, std::max<std::uint64_t>(1, std::bit_floor(bytes) / divisions));
}

std::uint64_t segment_size(std::uint64_t bytes) {
  if (bytes <= kSmallSize) return kSmallBuffer;
  if (bytes < kMinLargeAlloc) return kLargeBuffer;
  return align_up(bytes, kRoundLarge);
}

}  // namespace

bool TorchModel::BySize::operator()(const Block* a, const Block* b) const {
  return std::tie(a->stream, a->bytes, a->address) < std::tie(b->stream, b->bytes, b->address);
}

bool TorchModel::ByAddress::operator()(const Block* a, const Block* b) const {
  return std::tie(a->stream, a->address) < std::tie(b->stream, b->address);
}

TorchModel::TorchModel(Driver& driver, DeviceIndex device, const TorchSettings& settings)
    : driver_(driver), device_(device), settings_(settings) {
  DeviceProperties properties;
  if (driver.device_properties(device, properties) == DriverStatus::ok) {
    range_bytes_ = properties.total_bytes / 8 * 9;
    if (settings.garbage_collection_threshold > 0) {
      collect_above_bytes_ = static_cast<std::uint64_t>(
          settings.garbage_collection_threshold * static_cast<double>(properties.total_bytes));
    }
  }
}

TorchModel::~TorchModel() {
  for (auto& [stream, queue] : pending_) {
    for (; !queue.empty(); queue.pop_front()) settle(queue.front());
  }
  for (const EventHandle event : spare_events_) driver_.event_destroy(device_, event);
  // What is live goes with the model; the driver must get everything back.
  for (const auto& [address, block] : live_) {
    block->allocated = false;
    block->pool->free.insert(block);
  }
  for (auto& [id, pool] : pools_) {
    std::vector<Block*> blocks(pool->free.begin(), pool->free.end());
    for (Block* block : blocks) {
      if (block->range == nullptr && block->prev == nullptr) {
        driver_.mem_free(device_, block->address);
      }
      delete block;
    }
    for (Block* block : pool->unmapped) delete block;
  }
  for (const auto& range : ranges_) {
    for (std::uint64_t i = 0; i < range->handles.size(); ++i) {
      if (range->handles[i] == 0) continue;
      driver_.mem_unmap(range->address + i * range->step, range->step);
      driver_.mem_release(range->handles[i]);
    }
    driver_.address_free(range->address, range->bytes);
  }
}

void TorchModel::note_reserved(std::int64_t change) {
  reserved_ = static_cast<std::uint64_t>(static_cast<std::int64_t>(reserved_) + change);
  peak_reserved_ = std::max(peak_reserved_, reserved_);
}

TorchModel::Pool& TorchModel::pool_for(std::uint64_t bytes, std::uint8_t id) {
  const bool small = bytes <= kSmallSize;
  auto& pool = pools_[{id, small}];
  if (!pool) {
    pool = std::make_unique<Pool>();
    pool->small = small;
  }
  return *pool;
}

std::optional<std::uint64_t> TorchModel::idle_state() const {
  if (!live_.empty()) return {};
  for (const auto& [stream, queue] : pending_) {
    if (!queue.empty()) return {};
  }
  std::uint64_t digest = 14695981039346656037U;  // FNV-1a, by words
  const auto add = [&](std::uint64_t word) { digest = (digest ^ word) * 1099511628211U; };
  for (const auto& [id, pool] : pools_) {
    add(id.first * 2U + (id.second ? 1 : 0));
    const auto add_all = [&](const auto& blocks) {
      for (const Block* block : blocks) {
        add(block->address);
        add(block->bytes);
        add(block->stream);
        add(block->mapped ? 1 : 0);
      }
    };
    add_all(pool->free);
    add_all(pool->unmapped);
  }
  return digest;
}

// --- requests ----------------------------------------------------------------------------------

DeviceAddress TorchModel::alloc(std::uint64_t requested, StreamHandle stream, std::uint8_t id) {
  process_events();
  const std::uint64_t bytes = round_size(requested, settings_.roundup_power2_divisions);
  Pool& pool = pool_for(bytes, id);
  Block* block = take_free(pool, bytes, stream);
  if (block == nullptr) {
    collect_garbage(pool_for(UINT64_MAX, id));
    block = new_segment(pool, bytes, stream);
  }
  if (block == nullptr && release_oversize(pool, bytes, stream)) {
    block = new_segment(pool, bytes, stream);
  }
  if (block == nullptr) {
    release_cached();
    block = new_segment(pool, bytes, stream);
  }
  if (block == nullptr) return 0;
  const std::uint64_t rest = block->bytes - bytes;
  const bool splits = pool.small || block->range != nullptr
                          ? rest >= kMinBlockSize
                          : rest > kSmallSize && bytes < settings_.max_split_bytes;
  if (splits) split(block, bytes);
  block->allocated = true;
  live_[block->address] = block;
  return block->address;
}

TorchModel::Block* TorchModel::take_free(Pool& pool, std::uint64_t bytes, StreamHandle stream) {
  ++pool.searches;
  Block key;
  key.stream = stream;
  key.bytes = bytes;
  auto found = pool.free.lower_bound(&key);
  if (found == pool.free.end() || (*found)->stream != stream) return nullptr;
  // What an expandable block can grow to counts as its size: a larger block that cannot grow as far
  // is the better fit.
  const auto could_be = [](const Block* block) {
    const bool grows = block->next != nullptr && !block->next->mapped;
    return block->bytes + (grows ? block->next->bytes : 0);
  };
  for (auto next = std::next(found);
       (*found)->range != nullptr && next != pool.free.end() && (*next)->stream == stream &&
       could_be(*next) < could_be(*found);
       ++next) {
    found = next;
  }
  Block* block = *found;
  const bool whole = block->bytes >= settings_.max_split_bytes;
  if (whole && bytes < settings_.max_split_bytes) return nullptr;
  if (whole && block->bytes >= bytes + kMostNotSplit) return nullptr;
  pool.free.erase(found);
  return block;
}

void TorchModel::split(Block* block, std::uint64_t bytes) {
  Block* rest = detach_tail(block, bytes);
  block->pool->free.insert(rest);
}

TorchModel::Block* TorchModel::detach_tail(Block* block, std::uint64_t bytes) {
  auto* rest = new Block(*block);
  rest->address = block->address + bytes;
  rest->bytes = block->bytes - bytes;
  rest->prev = block;
  rest->allocated = false;
  if (rest->next != nullptr) rest->next->prev = rest;
  block->bytes = bytes;
  block->next = rest;
  return rest;
}

void TorchModel::free(DeviceAddress address) {
  const auto found = live_.find(address);
  Block* block = found->second;
  live_.erase(found);
  for (const StreamHandle stream : std::exchange(block->uses, {})) {
    EventHandle event = 0;
    if (spare_events_.empty()) {
      driver_.event_create(device_, event);
    } else {
      event = spare_events_.back();
      spare_events_.pop_back();
    }
    driver_.event_record(device_, event, stream);
    ++block->events;
    pending_[stream].push_back({event, block});
  }
  if (block->events == 0) make_free(block);
}

void TorchModel::record_stream(DeviceAddress address, StreamHandle stream) {
  Block* block = live_.at(address);
  if (stream == block->stream) return;
  std::vector<StreamHandle>& uses = block->uses;
  if (std::find(uses.begin(), uses.end(), stream) == uses.end()) uses.push_back(stream);
}

void TorchModel::process_events() {
  for (auto& [stream, queue] : pending_) {
    while (!queue.empty() &&
           driver_.event_query(device_, queue.front().event) != DriverStatus::not_ready) {
      settle(queue.front());
      queue.pop_front();
    }
  }
}

void TorchModel::settle(const Pending& pending) {
  spare_events_.push_back(pending.event);
  if (--pending.block->events == 0) make_free(pending.block);
}

void TorchModel::make_free(Block* block) {
  block->allocated = false;
  absorb(block, block->prev);
  absorb(block, block->next);
  block->freed_at = block->pool->searches;
  block->pool->free.insert(block);
}

bool TorchModel::absorb(Block* block, Block* neighbour) {
  if (neighbour == nullptr) return false;
  Block& other = *neighbour;
  if (other.allocated || other.mapped != block->mapped) return false;
  if (other.mapped) {
    other.pool->free.erase(&other);
  } else {
    other.pool->unmapped.erase(&other);
  }
  if (&other == block->prev) {
    block->address = other.address;
    block->prev = other.prev;
    if (block->prev != nullptr) block->prev->next = block;
  } else {
    block->next = other.next;
    if (block->next != nullptr) block->next->prev = block;
  }
  block->bytes += other.bytes;
  delete neighbour;
  return true;
}

// --- memory of the device ----------------------------------------------------------------------

TorchModel::Block* TorchModel::new_segment(Pool& pool, std::uint64_t bytes, StreamHandle stream) {
  if (settings_.expandable) return extend(pool, bytes, stream);
  const std::uint64_t size = segment_size(bytes);
  DeviceAddress address = 0;
  if (driver_.mem_alloc(device_, size, address) != DriverStatus::ok) return nullptr;
  auto* block = new Block;
  block->address = address;
  block->bytes = size;
  block->stream = stream;
  block->pool = &pool;
  note_reserved(static_cast<std::int64_t>(size));
  return block;
}

TorchModel::Block* TorchModel::room_in_ranges(Pool& pool, std::uint64_t bytes,
                                              StreamHandle stream) {
  Block key;
  key.stream = stream;
  for (auto at = pool.unmapped.lower_bound(&key);
       at != pool.unmapped.end() && (*at)->stream == stream; ++at) {
    // The lowest unmapped block, with a free one just before it.
    Block* first = *at;
    if (first->prev != nullptr && !first->prev->allocated) first = first->prev;
    std::uint64_t room = 0;
    for (const Block* block = first; room < bytes && block != nullptr && !block->allocated;
         block = block->next) {
      room += block->bytes;
    }
    if (room >= bytes) return first;
  }
  auto range = std::make_unique<Range>();
  range->stream = stream;
  range->step = pool.small ? kSmallBuffer : kLargeBuffer;
  const std::uint64_t steps = div_up(std::max(range_bytes_, bytes), range->step);
  range->bytes = steps * range->step;
  if (driver_.address_reserve(range->bytes, 0, range->address) != DriverStatus::ok) return nullptr;
  auto* block = new Block;
  block->address = range->address;
  block->bytes = range->bytes;
  block->stream = stream;
  block->pool = &pool;
  block->range = range.get();
  block->mapped = false;
  pool.unmapped.insert(block);
  ranges_.push_back(std::move(range));
  return block;
}

TorchModel::Block* TorchModel::extend(Pool& pool, std::uint64_t bytes, StreamHandle stream) {
  Block* block = room_in_ranges(pool, bytes, stream);
  if (block == nullptr) return nullptr;
  if (!block->mapped && !map_block(block, std::min(block->bytes, bytes))) return nullptr;
  while (block->bytes < bytes) {
    Block* next = block->next;
    if (!map_block(next, std::min(bytes - block->bytes, next->bytes))) return nullptr;
    block = next;  // it took the free block before it in
  }
  pool.free.erase(block);
  return block;
}

bool TorchModel::map_block(Block* block, std::uint64_t bytes) {
  Range& range = *block->range;
  const std::uint64_t first = (block->address - range.address) / range.step;
  const std::uint64_t last = div_up(block->address - range.address + bytes, range.step);
  for (std::uint64_t i = first; i < last; ++i) {
    if (i >= range.handles.size()) range.handles.resize(i + 1, 0);
    if (driver_.mem_create(device_, range.step, range.handles[i]) == DriverStatus::ok) continue;
    for (std::uint64_t j = first; j < i; ++j) {
      driver_.mem_release(range.handles[j]);
      range.handles[j] = 0;
    }
    range.handles[i] = 0;
    return false;
  }
  for (std::uint64_t i = first; i < last; ++i) {
    driver_.mem_map(range.address + i * range.step, range.step, range.handles[i]);
  }
  const std::uint64_t mapped = (last - first) * range.step;
  driver_.mem_set_access(range.address + first * range.step, mapped, device_);
  range.mapped_steps += last - first;
  block->pool->unmapped.erase(block);
  if (mapped < block->bytes) {
    Block* rest = detach_tail(block, mapped);
    rest->mapped = false;
    block->pool->unmapped.insert(rest);
  }
  block->mapped = true;
  absorb(block, block->prev);
  absorb(block, block->next);
  block->pool->free.insert(block);
  note_reserved(static_cast<std::int64_t>(mapped));
  return true;
}

void TorchModel::release(Block* block) {
  driver_.mem_free(device_, block->address);
  note_reserved(-static_cast<std::int64_t>(block->bytes));
  block->pool->free.erase(block);
  delete block;
}

bool TorchModel::release_oversize(Pool& pool, std::uint64_t bytes, StreamHandle stream) {
  if (settings_.max_split_bytes == UINT64_MAX) return false;
  const std::uint64_t wanted = std::max(bytes, settings_.max_split_bytes);
  const auto is_whole = [](const Block* block) {
    return block->range == nullptr && block->prev == nullptr && block->next == nullptr;
  };
  Block key;
  key.stream = stream;
  key.bytes = wanted;
  const auto found = pool.free.lower_bound(&key);
  if (found != pool.free.end() && (*found)->stream == stream) {
    if (!is_whole(*found)) return false;
    release(*found);
    return true;
  }
  // None is large enough: several, the largest first.
  std::vector<Block*> chosen;
  std::uint64_t released = 0;
  for (auto at = found; released < wanted && at != pool.free.begin();) {
    --at;
    if ((*at)->stream != stream || (*at)->bytes < settings_.max_split_bytes) break;
    if (!is_whole(*at)) continue;
    released += (*at)->bytes;
    chosen.push_back(*at);
  }
  for (Block* block : chosen) release(block);
  return released >= wanted;
}

void TorchModel::collect_garbage(Pool& pool) {
  if (reserved_ <= collect_above_bytes_) return;
  std::vector<Block*> whole;
  std::uint64_t ages = 0;
  const auto age = [&](const Block* block) { return pool.searches - block->freed_at; };
  for (Block* block : pool.free) {
    if (block->range != nullptr || block->prev != nullptr || block->next != nullptr) continue;
    whole.push_back(block);
    ages += age(block);
  }
  std::uint64_t target = reserved_ - collect_above_bytes_;
  // Those that are older than the mean, and again while that frees something and is not enough.
  for (bool any = true; any && target > 0 && !whole.empty();) {
    any = false;
    const std::uint64_t oldest = ages / whole.size();
    std::vector<Block*> left;
    for (Block* block : whole) {
      if (age(block) < oldest) {
        left.push_back(block);
        continue;
      }
      any = true;
      ages -= age(block);
      target -= std::min(target, block->bytes);
      release(block);
    }
    whole = std::move(left);
  }
}

void TorchModel::release_cached() {
  for (auto& [stream, queue] : pending_) {
    for (; !queue.empty(); queue.pop_front()) {
      driver_.event_synchronize(device_, queue.front().event);
      settle(queue.front());
    }
  }
  for (const bool small : {false, true}) {
    for (auto& [id, pool] : pools_) {
      if (pool->small != small) continue;
      const std::vector<Block*> blocks(pool->free.begin(), pool->free.end());
      for (Block* block : blocks) {
        if (block->range != nullptr) {
          unmap_block(block);
        } else if (block->prev == nullptr && block->next == nullptr) {
          release(block);
        }
      }
    }
  }
}

void TorchModel::unmap_block(Block* block) {
  Range& range = *block->range;
  const std::uint64_t first = div_up(block->address - range.address, range.step);
  const std::uint64_t last = (block->address - range.address + block->bytes) / range.step;
  if (first >= last) return;
  unmap_steps(range, first, last);
  Pool& pool = *block->pool;
  pool.free.erase(block);
  const DeviceAddress begin = range.address + first * range.step;
  const std::uint64_t bytes = (last - first) * range.step;
  if (begin > block->address) {
    Block* below = block;
    block = detach_tail(below, begin - below->address);
    pool.free.insert(below);
  }
  if (block->bytes > bytes) {
    Block* above = detach_tail(block, bytes);
    pool.free.insert(above);
  }
  block->mapped = false;
  absorb(block, block->prev);
  absorb(block, block->next);
  pool.unmapped.insert(block);
  note_reserved(-static_cast<std::int64_t>(bytes));
  if (range.mapped_steps == 0) {
    driver_.address_free(range.address, range.bytes);
    pool.unmapped.erase(block);
    delete block;
    std::erase_if(ranges_, [&](const auto& other) { return other.get() == &range; });
  }
}

void TorchModel::unmap_steps(Range& range, std::uint64_t first, std::uint64_t last) {
  driver_.stream_synchronize(device_, range.stream);
  for (std::uint64_t i = first; i < last; ++i) {
    driver_.mem_unmap(range.address + i * range.step, range.step);
    driver_.mem_release(range.handles[i]);
    range.handles[i] = 0;
  }
  range.mapped_steps -= last - first;
}

}  // namespace gapless::bench
