// EventPool: events that were used and may be recorded again, by device: an event belongs to the
// device it was made on, and only streams of that device record it.
//
//   record(stream of device 1)   a spare event of device 1, else a new one
//   put_back(1, event)           spare again, when nobody asks for it any more
#pragma once

#include <map>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless {

class EventPool {
 public:
  explicit EventPool(Driver& driver) : driver_(driver) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool() {
    for (const auto& [device, spare] : spare_) {
      for (const EventHandle event : spare) driver_.event_destroy(device, event);
    }
  }

  /// An event that stands for all work the stream has been given so far. What the driver refuses
  /// leaves nothing behind.
  DriverStatus record(const DeviceStream& stream, EventHandle& event) {
    std::vector<EventHandle>& spare = spare_[stream.device];
    EventHandle taken = 0;
    if (spare.empty()) {
      const DriverStatus status = driver_.event_create(stream.device, taken);
      if (status != DriverStatus::ok) return status;
      spare.push_back(taken);
    }
    taken = spare.back();
    const DriverStatus status = driver_.event_record(stream.device, taken, stream.handle);
    if (status != DriverStatus::ok) return status;
    spare.pop_back();
    event = taken;
    return DriverStatus::ok;
  }
  void put_back(DeviceIndex device, EventHandle event) { spare_[device].push_back(event); }

 private:
  Driver& driver_;
  std::map<DeviceIndex, std::vector<EventHandle>> spare_;
};

}  // namespace gapless
