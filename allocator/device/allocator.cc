#include "allocator/device/allocator.h"

namespace gapless {

Allocator::Allocator(Driver& driver, const Options& options, DriverStatus& status) {
  std::int32_t count = 0;
  status = driver.device_count(count);
  for (DeviceIndex device = 0; device < count && status == DriverStatus::ok; ++device) {
    DeviceProperties properties;
    status = driver.device_properties(device, properties);
    if (status != DriverStatus::ok) break;
    devices_.push_back(std::make_unique<DeviceAllocator>(driver, device, properties, options));
  }
  if (status != DriverStatus::ok) devices_.clear();
}

Status Allocator::alloc(DeviceIndex index, std::uint64_t bytes, StreamHandle stream,
                        DeviceAddress& address) {
  DeviceAllocator* allocator = device(index);
  return allocator == nullptr ? Status::invalid_argument : allocator->alloc(bytes, stream, address);
}

Status Allocator::free(DeviceAddress address) {
  if (address == 0) return Status::ok;
  for (const auto& allocator : devices_) {
    const Status status = allocator->free(address);
    if (status != Status::invalid_argument) return status;
  }
  return Status::invalid_argument;
}

Status Allocator::record_stream(DeviceAddress address, const DeviceStream& stream) {
  for (const auto& device : devices_) {
    if (device->record_stream(address, stream) == Status::ok) return Status::ok;
  }
  return Status::invalid_argument;
}

Status Allocator::record_stream(DeviceAddress address, StreamHandle stream) {
  for (const auto& device : devices_) {
    if (device->record_stream(address, stream) == Status::ok) return Status::ok;
  }
  return Status::invalid_argument;
}

}  // namespace gapless
