// DeviceAllocator: what the options `check` and `fence` ask for, where blocks begin and end.
//
//   alloc  -> alloc_behind_fence, or place with room for bands -> check_begin -> tell_begin
//   free   -> free_behind_fence, or check_end -> tell_end -> DeviceHeap::free
//
// Blocks of private pools have none of it: graphs that were captured there write to memory that was
// freed, and what the user's own allocator gave is laid out as she asked. A tool is told of them
// (check:nvtx), and what is freed where graphs were captured is kept as long as these may run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"

namespace gapless {
namespace {

// After so many sentences mistakes are only counted.
constexpr std::uint64_t kMostSentences = 50;

}  // namespace

void DeviceAllocator::make_check() {
  check_ =
      std::make_unique<MemoryCheck>(driver_, device_, main_.heap.page_bytes(), main_.heap.share(),
                                    options_.check, options_.fence, main_.heap.uses_vmm());
  check_->fence().memory().set_limit_bytes(options_.limit);
  check_->fence().memory().set_headroom_bytes(options_.headroom);
  check_->fence().memory().set_reserved_elsewhere([this] {
    return reserved_beside(main_.heap) + main_.heap.reserved_bytes() -
           check_->fence().reserved_bytes();
  });
  main_.band_bytes = check_->before_bytes();
}

void DeviceAllocator::set_call_site_source(std::function<std::string()> source) {
  const std::scoped_lock lock(lock_);
  call_site_source_ = std::move(source);
}

void DeviceAllocator::set_memory_comparer(Contents::Comparer comparer) {
  const std::scoped_lock lock(lock_);
  if (check_ == nullptr) return;
  if (nvtx_ != nullptr && comparer) {
    comparer = [this, inner = std::move(comparer)](DeviceAddress begin, std::uint64_t bytes,
                                                   std::uint32_t word, StreamHandle stream,
                                                   Difference& difference) {
      const auto opened = nvtx_->memory().open(begin, bytes);
      return inner(begin, bytes, word, stream, difference);
    };
  }
  check_->set_comparer(std::move(comparer));
}

bool DeviceAllocator::may_touch(const Arena& arena, Owner owner) const {
  return arena.heap.streams().sets().pool_of(owner) == 0 && !captures();
}

// --- blocks with a fence -------------------------------------------------------------------------

bool DeviceAllocator::alloc_behind_fence(std::uint64_t bytes, StreamHandle stream,
                                         DeviceAddress& address, Usage* usage) {
  if (pools_.of(stream) != 0 || captures()) return false;
  const Fence::Block* const block = check_->fence_off(bytes, stream);
  if (block == nullptr) return false;
  const std::uint64_t taken = block->mapped_bytes;
  statistics_.on_alloc(taken <= kSmallPoolBytes, static_cast<std::int64_t>(taken),
                       static_cast<std::int64_t>(bytes));
  if (statistics_.has_deferred()) statistics_.note_active();
  note_memory();
  if (usage != nullptr) *usage = usage_with(bytes);
  address = block->facts.address;
  tell_begin(address, bytes);
  if (log_.is_on()) log_.record(AllocatorEvent::Kind::alloc, address, bytes, stream);
  return true;
}

Status DeviceAllocator::free_behind_fence(DeviceAddress address, Usage* usage) {
  Fence::Block* const block = fenced_at(address);
  if (block == nullptr) return Status::invalid_argument;
  const std::uint64_t taken = block->mapped_bytes;
  const std::uint64_t requested = block->facts.requested_bytes;
  statistics_.on_free(taken <= kSmallPoolBytes, static_cast<std::int64_t>(taken),
                      static_cast<std::int64_t>(requested));
  if (block->pins != 0) note_fenced_held(*block, 1);
  if (log_.is_on()) {
    log_.record(AllocatorEvent::Kind::free, address, requested, block->facts.stream);
  }
  // Its memory stays while it is pinned, or the driver refuses.
  if (nvtx_ != nullptr) nvtx_->memory().keep(address, NvtxMemory::kUntilUnmapped);
  check_->end(*block, !captures());
  note_memory();
  if (usage != nullptr) *usage = usage_with(requested);
  return Status::ok;
}

Status DeviceAllocator::with_fenced(DeviceAddress address,
                                    const std::function<Status(Fence::Block&)>& act) {
  Fence::Block* const block = check_ == nullptr ? nullptr : check_->fence().find_any(address);
  if (block == nullptr) return Status::invalid_argument;
  const bool held = block->freed && block->pins == 1;
  if (held) note_fenced_held(*block, -1);
  const Status status = act(*block);
  if (held && status != Status::ok) note_fenced_held(*block, 1);
  if (block->freed && block->pins == 0 && !captures()) (void)check_->fence().take_away(*block);
  note_memory();
  return status;
}

void DeviceAllocator::note_fenced_held(const Fence::Block& block, int blocks) {
  statistics_.on_deferred(block.mapped_bytes <= kSmallPoolBytes, blocks,
                          blocks * static_cast<std::int64_t>(block.mapped_bytes),
                          blocks * static_cast<std::int64_t>(block.facts.requested_bytes));
}

// --- all others ----------------------------------------------------------------------------------

std::vector<RangeSet::Range> DeviceAllocator::home_ranges(const DeviceHeap& heap, BlockId id) {
  const BlockTable& blocks = heap.blocks();
  std::vector<RangeSet::Range> ranges;
  const auto add = [&](const Block& block) {
    const DeviceAddress begin = heap.home_address(block.begin);
    ranges.push_back({begin, begin + block.size * kUnitBytes});
  };
  const Block& block = blocks[id];
  if (block.state != BlockState::window) {
    add(block);
    return ranges;
  }
  for (BlockId lent = block.link_next; lent != 0; lent = blocks[lent].link_next) add(blocks[lent]);
  return ranges;
}

void DeviceAllocator::check_begin(const Arena& arena, BlockId id) {
  std::uint64_t released = 0;
  for_each_arena([&](const Arena& one) { released += one.heap.pages_released(); });
  check_->note_released(released);
  const Block& block = arena.heap.blocks()[id];
  const BlockFacts facts = facts_of(arena, id);
  check_->begin(arena.address_of(id), facts.bytes, facts.requested_bytes, facts.stream,
                home_ranges(arena.heap, id), may_touch(arena, block.owner));
  tell_begin(arena.address_of(id), facts.requested_bytes);
}

void DeviceAllocator::check_end(const Arena& arena, BlockId id) {
  const Owner owner = arena.heap.blocks()[id].owner;
  const StreamSets& sets = arena.heap.streams().sets();
  const auto streams = sets.members(owner);
  std::vector<DeviceIndex> others;
  for (std::size_t i = 1; i < streams.size(); ++i) {
    const DeviceIndex device = sets.stream(streams[i]).device;
    if (std::find(others.begin(), others.end(), device) == others.end()) others.push_back(device);
  }
  check_->end(arena.address_of(id), others, home_ranges(arena.heap, id), may_touch(arena, owner));
  tell_end(arena.address_of(id), sets.pool_of(owner), others);
}

// --- what a tool is told -------------------------------------------------------------------------

void DeviceAllocator::tell_begin(DeviceAddress address, std::uint64_t bytes) {
  if (nvtx_ == nullptr) return;
  const std::string& call_site = MemoryCheck::call_site();
  nvtx_->memory().begin(address, bytes, call_site.empty() ? format_bytes(bytes) : call_site);
  if (nvtx_->memory().nobody_listens() && !std::exchange(told_of_no_tool_, true)) {
    check_->add_news(
        "check:nvtx: no tool wants to know of blocks; compute-sanitizer does, where it starts the "
        "program");
  }
}

void DeviceAllocator::tell_end(DeviceAddress address, PoolIndex pool,
                               std::span<const DeviceIndex> others) {
  if (nvtx_ == nullptr) return;
  NvtxMemory& memory = nvtx_->memory();
  if (pool != 0 && pools_.has(pool) && pools_.at(pool).captured) return memory.keep(address, pool);
  if (captures()) return memory.keep(address, NvtxMemory::kWhileCapturing);
  // Work that was given to the device before the free is not to be taken for use after it.
  (void)driver_.device_synchronize(device_);
  for (const DeviceIndex other : others) {
    if (other != device_) (void)driver_.device_synchronize(other);
  }
  memory.end(address);
  memory.forget(NvtxMemory::kWhileCapturing);
}

void DeviceAllocator::tell_pool_is_gone(PoolIndex pool) {
  NvtxMemory& memory = nvtx_->memory();
  if (captures()) return memory.move(pool, NvtxMemory::kWhileCapturing);
  (void)driver_.device_synchronize(device_);
  memory.forget(pool);
}

// --- what was found ------------------------------------------------------------------------------

void DeviceAllocator::check_now() {
  if (check_ == nullptr) return;
  {
    const std::scoped_lock lock(lock_);
    if (!captures()) check_->look_at_all();
  }
  tell_mistakes();
}

std::vector<Mistake> DeviceAllocator::mistakes() const {
  const std::scoped_lock lock(lock_);
  return check_ == nullptr ? std::vector<Mistake>{} : check_->mistakes();
}

std::uint64_t DeviceAllocator::mistakes_found() const {
  const std::scoped_lock lock(lock_);
  return check_ == nullptr ? 0 : check_->found();
}

void DeviceAllocator::tell_mistakes() const {
  std::vector<std::string> news;
  std::uint64_t found = 0;
  {
    const std::scoped_lock lock(lock_);
    news = check_->take_news();
    found = check_->found();
  }
  if (news.empty()) return;
  for (const std::string& sentence : news) {
    if (found <= kMostSentences) std::fprintf(stderr, "gapless: check: %s.\n", sentence.c_str());
  }
  if (found > kMostSentences && found - news.size() <= kMostSentences) {
    std::fprintf(stderr, "gapless: check: more was found, and is only counted from here on.\n");
  }
  if (options_.check_stop && found != 0) std::abort();
}

void DeviceAllocator::report_checks(HeapReport& report) const {
  check_->fence().for_each([&](const Fence::Block& block) {
    report.window_blocks.push_back({block.freed,
                                    true,
                                    block.mapped_begin,
                                    block.facts.address,
                                    block.mapped_bytes,
                                    block.facts.requested_bytes,
                                    block.facts.stream,
                                    {}});
  });
  report.checks = true;
  report.checked = check_->live();
  report.freed = check_->freed();
  report.mistakes = check_->mistakes();
}

}  // namespace gapless
