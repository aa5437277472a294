#include "allocator/memory/physical_memory.h"

#include <utility>

namespace gapless {

DriverStatus PhysicalMemory::create(std::span<MemHandle> handles) {
  if (!within_limit(handles.size())) return DriverStatus::out_of_memory;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const DriverStatus status = driver_.mem_create(device_, page_bytes_, handles[i]);
    if (status != DriverStatus::ok) {
      release(handles.first(i));
      return status;
    }
    ++live_;
    ++created_;
  }
  return DriverStatus::ok;
}

void PhysicalMemory::release(std::span<const MemHandle> handles) {
  for (const MemHandle handle : handles) {
    --live_;
    if (driver_.mem_release(handle) == DriverStatus::ok) {
      ++released_;
    } else {
      unreleased_.push_back(handle);
    }
  }
}

void PhysicalMemory::retry_releases() {
  for (const MemHandle handle : std::exchange(unreleased_, {})) {
    if (driver_.mem_release(handle) == DriverStatus::ok) {
      ++released_;
    } else {
      unreleased_.push_back(handle);
    }
  }
}

}  // namespace gapless
