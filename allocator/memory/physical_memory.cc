#include "allocator/memory/physical_memory.h"

#include <algorithm>
#include <utility>

namespace gapless {

DriverStatus PhysicalMemory::create(std::span<MemoryPiece> pieces) {
  const std::uint64_t bytes = bytes_of(pieces);
  if (!within_limit(bytes)) return DriverStatus::out_of_memory;
  if (headroom_bytes_ != 0 && free_on_device().value_or(bytes) < bytes) {
    return DriverStatus::out_of_memory;
  }
  return create(pieces, false);
}

DriverStatus PhysicalMemory::create_on_host(std::span<MemoryPiece> pieces) {
  return create(pieces, true);
}

DriverStatus PhysicalMemory::create(std::span<MemoryPiece> pieces, bool on_host) {
  const MemKind kind{.on_host = on_host, .share = share_};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const DriverStatus status =
        driver_.mem_create(device_, pieces[i].bytes, kind, pieces[i].handle);
    if (status != DriverStatus::ok) {
      release(pieces.first(i));
      return status;
    }
    if (on_host) on_host_.insert(pieces[i].handle);
    (on_host ? host_bytes_ : reserved_bytes_) += pieces[i].bytes;
    ++created_;
  }
  return DriverStatus::ok;
}

std::optional<std::uint64_t> PhysicalMemory::free_on_device() const {
  MemInfo info;
  if (driver_.mem_info(device_, info) != DriverStatus::ok) return {};
  return info.free_bytes - std::min(info.free_bytes, headroom_bytes_);
}

void PhysicalMemory::release(std::span<const MemoryPiece> pieces) {
  for (const MemoryPiece& piece : pieces) release_one(piece);
}

void PhysicalMemory::release_one(const MemoryPiece& piece) {
  if (driver_.mem_release(piece.handle) == DriverStatus::ok) {
    ++released_;
    const bool on_host = on_host_.erase(piece.handle) != 0;
    (on_host ? host_bytes_ : reserved_bytes_) -= piece.bytes;
  } else {
    unreleased_.push_back(piece);
  }
}

void PhysicalMemory::retry_releases() {
  for (const MemoryPiece& piece : std::exchange(unreleased_, {})) release_one(piece);
}

}  // namespace gapless
