// RecordedEvents: what an allocator told of itself adds up to what is.
//
//   alloc A 4 KiB   alloc B 1 MiB   free A   mapped 2 MiB at ...
//   -> live: B, 1 MiB requested; 2 MiB mapped       as the statistics say, after every operation
//
// A block that is allocated where one lives, or freed where none does, is a mistake.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "allocator/device/device_allocator.h"
#include "allocator/device/event_ring.h"

namespace gapless::testing {

class RecordedEvents {
 public:
  explicit RecordedEvents(DeviceAllocator& allocator) : allocator_(allocator) {
    const auto there = allocator.begin_recording(ring_, nullptr);
    if (!there) wrong_ = "it was recorded already";
    for (const AllocatorEvent& event : *there) note(event);
  }

  /// Empty where all is well. `mapped`: what is reserved must be as recorded, too. (Not told of are
  /// fences, memory of the host, pools that sleep, and releases that the driver refused.)
  std::string check(bool mapped) {
    ring_->take([this](const AllocatorEvent& event) { note(event); });
    if (!wrong_.empty()) return wrong_;
    if (ring_->lost() != 0) return "recorded events were lost";
    const DeviceStatistics now = allocator_.statistics();
    const auto differ = [](const char* what, std::int64_t told, std::int64_t is) {
      return told == is ? ""
                        : fmt::format("by what was recorded {} are {}, not {}", what, told, is);
    };
    std::string wrong =
        differ("live blocks", static_cast<std::int64_t>(live_.size()), now.allocation.all.current);
    if (wrong.empty() && mapped) {
      wrong = differ("reserved bytes", reserved_bytes_, now.reserved_bytes.all.current);
    }
    return wrong;
  }

  /// What a live block asked for, as it was recorded; nothing where none was.
  [[nodiscard]] std::optional<std::uint64_t> requested_at(DeviceAddress address) const {
    const auto found = live_.find(address);
    return found == live_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  void note(const AllocatorEvent& event) {
    const auto fail = [&](const char* what) {
      if (wrong_.empty()) wrong_ = fmt::format("recorded: {:#x} {}", event.address, what);
    };
    switch (event.kind) {
      case AllocatorEvent::Kind::alloc:
        held_.erase(event.address);  // what lay there may be the same block, restored
        if (!live_.emplace(event.address, event.bytes).second) fail("is allocated twice");
        break;
      case AllocatorEvent::Kind::free_requested:
        if (live_.erase(event.address) == 0) fail("is given up, and does not live");
        held_.emplace(event.address, event.bytes);
        break;
      case AllocatorEvent::Kind::free:
        if (held_.erase(event.address) == 0 && live_.erase(event.address) == 0) {
          fail("is freed, and does not live");
        }
        break;
      case AllocatorEvent::Kind::mapped:
        reserved_bytes_ += static_cast<std::int64_t>(event.bytes);
        break;
      case AllocatorEvent::Kind::unmapped:
        reserved_bytes_ -= static_cast<std::int64_t>(event.bytes);
        break;
      case AllocatorEvent::Kind::out_of_memory:
      case AllocatorEvent::Kind::lost:
        break;
    }
  }

  DeviceAllocator& allocator_;
  std::shared_ptr<EventRing> ring_ = std::make_shared<EventRing>(1 << 15);
  std::map<DeviceAddress, std::uint64_t> live_;
  std::map<DeviceAddress, std::uint64_t> held_;  // freed, but pinned
  std::int64_t reserved_bytes_ = 0;
  std::string wrong_;
};

}  // namespace gapless::testing
