#include "allocator/memory/physical_memory.h"

#include <utility>

namespace gapless {

DriverStatus PhysicalMemory::create(std::span<MemHandle> handles) {
  if (!within_limit(handles.size()) || !leaves_headroom(handles.size())) {
    return DriverStatus::out_of_memory;
  }
  return create(handles, false);
}

DriverStatus PhysicalMemory::create_on_host(std::span<MemHandle> handles) {
  return create(handles, true);
}

DriverStatus PhysicalMemory::create(std::span<MemHandle> handles, bool on_host) {
  const MemKind kind{.on_host = on_host, .share = share_};
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const DriverStatus status = driver_.mem_create(device_, page_bytes_, kind, handles[i]);
    if (status != DriverStatus::ok) {
      release(handles.first(i));
      return status;
    }
    if (on_host) on_host_.insert(handles[i]);
    ++live_;
    ++created_;
  }
  return DriverStatus::ok;
}

bool PhysicalMemory::leaves_headroom(std::uint64_t count) const {
  if (headroom_bytes_ == 0) return true;
  MemInfo info;
  if (driver_.mem_info(device_, info) != DriverStatus::ok) return true;
  return info.free_bytes >= count * page_bytes_ + headroom_bytes_;
}

void PhysicalMemory::release(std::span<const MemHandle> handles) {
  for (const MemHandle handle : handles) {
    --live_;
    release_one(handle);
  }
}

void PhysicalMemory::release_one(MemHandle handle) {
  if (driver_.mem_release(handle) == DriverStatus::ok) {
    ++released_;
    on_host_.erase(handle);
  } else {
    unreleased_.push_back(handle);
  }
}

void PhysicalMemory::retry_releases() {
  for (const MemHandle handle : std::exchange(unreleased_, {})) release_one(handle);
}

}  // namespace gapless
