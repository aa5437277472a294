// PhysicalMemory: the handles of one device, all of one size, counted against a limit.
//
//   page_bytes 2 MiB, limit 16 GiB:   [h1][h2][h3] ... at most 8192 handles, reserved = n * 2 MiB
//
// Creation is all or nothing. A handle that the driver refuses to release stays counted and is
// tried again later: reserved_bytes() never says less than the device has given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless {

class PhysicalMemory {
 public:
  PhysicalMemory(Driver& driver, DeviceIndex device, std::uint64_t page_bytes)
      : driver_(driver), device_(device), page_bytes_(page_bytes) {}

  [[nodiscard]] std::uint64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] std::uint64_t reserved_bytes() const {
    return (live_ + unreleased_.size()) * page_bytes_;
  }
  [[nodiscard]] std::uint64_t limit_bytes() const { return limit_bytes_; }
  void set_limit_bytes(std::uint64_t limit) { limit_bytes_ = limit; }
  /// Whether `count` more pages stay within the limit.
  [[nodiscard]] bool within_limit(std::uint64_t count) const {
    return reserved_bytes() + count * page_bytes_ <= limit_bytes_;
  }

  /// Fills `handles`, or changes nothing. out_of_memory also where the limit would be passed.
  DriverStatus create(std::span<MemHandle> handles);
  /// The memory goes when its last mapping has gone.
  void release(std::span<const MemHandle> handles);
  /// Tries again what the driver refused to release.
  void retry_releases();

  [[nodiscard]] std::uint64_t created() const { return created_; }
  [[nodiscard]] std::uint64_t released() const { return released_; }
  [[nodiscard]] std::size_t unreleased() const { return unreleased_.size(); }

 private:
  Driver& driver_;
  DeviceIndex device_;
  std::uint64_t page_bytes_;
  std::uint64_t limit_bytes_ = UINT64_MAX;
  std::uint64_t live_ = 0;
  std::uint64_t created_ = 0;
  std::uint64_t released_ = 0;
  std::vector<MemHandle> unreleased_;
};

}  // namespace gapless
