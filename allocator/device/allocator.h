// Allocator: all devices of a driver, each with its own DeviceAllocator.
#pragma once

#include <memory>
#include <vector>

#include "allocator/device/device_allocator.h"

namespace gapless {

class Allocator {
 public:
  /// One allocator for each device the driver has; `status` tells where the driver failed.
  Allocator(Driver& driver, const Options& options, DriverStatus& status);

  [[nodiscard]] DeviceIndex devices() const { return static_cast<DeviceIndex>(devices_.size()); }
  /// The allocator of a device; nullptr for an index there is not.
  [[nodiscard]] DeviceAllocator* device(DeviceIndex index) const {
    return index >= 0 && index < devices() ? devices_[static_cast<std::size_t>(index)].get()
                                           : nullptr;
  }

  Status alloc(DeviceIndex device, std::uint64_t bytes, StreamHandle stream,
               DeviceAddress& address);
  /// Finds the device itself: addresses are unique over all devices.
  Status free(DeviceAddress address);
  Status record_stream(DeviceAddress address, const DeviceStream& stream);
  /// A stream of the device that the memory is on.
  Status record_stream(DeviceAddress address, StreamHandle stream);

 private:
  std::vector<std::unique_ptr<DeviceAllocator>> devices_;
};

}  // namespace gapless
