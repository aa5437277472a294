// DeviceAllocator: what happens, told to a ring while a recorder asks for it.
//
//   begin_recording   mapped 0x7f..  alloc A  alloc B      what is there, as the result
//   requests          alloc C  free A  mapped 0x7f.. ...   into the ring, with the lock held
#include <algorithm>
#include <mutex>
#include <utility>

#include "allocator/device/device_allocator.h"

namespace gapless {
namespace {

// Whether that was found out before the request.
bool& caller_is_known() {
  thread_local bool known = false;
  return known;
}

AllocatorEvent event_of(AllocatorEvent::Kind kind, DeviceAddress address, std::uint64_t bytes,
                        StreamHandle stream, PoolId pool) {
  AllocatorEvent event;
  set_event(event, kind, address, bytes, stream, pool);
  return event;
}

// What lies in the home and is not lent to a window, and the blocks in windows: what their pages
// are, each once (DeviceHeap::note_lent).
std::vector<AllocatorEvent> mapped_in(const HeapReport& heap) {
  std::vector<AllocatorEvent> events;
  const auto add = [&](DeviceAddress address, std::uint64_t bytes) {
    if (!events.empty() && events.back().address + events.back().bytes == address) {
      events.back().bytes += bytes;
    } else {
      events.push_back(event_of(AllocatorEvent::Kind::mapped, address, bytes, 0, {}));
    }
  };
  for (const BlockReport& piece : heap.home) {
    if (piece.kind != BlockReport::Kind::lent) add(piece.address, piece.bytes);
  }
  for (const WindowBlockReport& block : heap.window_blocks) {
    if (!block.fenced) add(block.address, block.bytes);
  }
  return events;
}

template <class Piece>
void add_block(const Piece& piece, bool held, std::vector<AllocatorEvent>& events) {
  events.push_back(event_of(AllocatorEvent::Kind::alloc, piece.given, piece.requested_bytes,
                            piece.stream, piece.pool));
  if (!held) return;
  events.push_back(events.back());
  events.back().kind = AllocatorEvent::Kind::free_requested;
}

}  // namespace

std::optional<std::vector<AllocatorEvent>> DeviceAllocator::begin_recording(
    std::shared_ptr<EventRing> ring, StackSource stacks) {
  const std::scoped_lock lock(lock_);
  if (log_.is_on()) return {};
  HeapReport main;
  report_arena(main_, main);
  const auto by_address = [](const auto& a, const auto& b) { return a.address < b.address; };
  std::sort(main.home.begin(), main.home.end(), by_address);
  std::sort(main.window_blocks.begin(), main.window_blocks.end(), by_address);
  std::vector<AllocatorEvent> events = mapped_in(main);
  HeapReport all;
  for_each_arena([&](const Arena& arena) { report_arena(arena, all); });
  if (check_ != nullptr) report_checks(all);
  for (const BlockReport& piece : all.home) {
    const bool held = piece.kind == BlockReport::Kind::held;
    if (held || piece.kind == BlockReport::Kind::live) add_block(piece, held, events);
  }
  for (const WindowBlockReport& block : all.window_blocks) add_block(block, block.held, events);
  log_.begin(std::move(ring), stacks);
  observe_mappings();
  return events;
}

void DeviceAllocator::end_recording() {
  const std::scoped_lock lock(lock_);
  log_.end();
  observe_mappings();
}

void DeviceAllocator::change_stack_source(StackSource stacks) {
  const std::scoped_lock lock(lock_);
  log_.change_stack_source(stacks);
}

void DeviceAllocator::observe_mappings() {
  if (!log_.is_on()) {
    main_.heap.set_mapping_observer(mapping_observer_);
    return;
  }
  main_.heap.set_mapping_observer([this](const MappingChange& change) {
    log_.record(change.mapped ? AllocatorEvent::Kind::mapped : AllocatorEvent::Kind::unmapped,
                change.address, change.bytes, 0);
    if (mapping_observer_) mapping_observer_(change);
  });
}

void DeviceAllocator::note_caller() const {
  if (!asks_callers()) return;
  find_caller();
  caller_is_known() = true;
}

void DeviceAllocator::find_caller() const {
  if (std::exchange(caller_is_known(), false)) return;
  if (check_ != nullptr) MemoryCheck::note_call_site(call_site_source_);
  log_.find_stack();
}

void DeviceAllocator::record(AllocatorEvent::Kind kind, const Arena& arena, BlockId id) {
  const Block& block = arena.heap.blocks()[id];
  const EventLog::Whose& whose = log_.whose(&arena, block.owner, [&] {
    return EventLog::Whose{stream_of(arena, block.owner),
                           pool_id(arena.heap.streams().sets().pool_of(block.owner))};
  });
  log_.record(kind, arena.address_of(id), block.size * kUnitBytes - block.extra, whose.stream,
              whose.pool);
}

}  // namespace gapless
