// PhysicalMemory: the handles of one device, all of one size, counted against a limit.
//
//   page_bytes 2 MiB, limit 16 GiB:   [h1][h2][h3] ... at most 8192 handles, reserved = n * 2 MiB
//
// Handles of host memory, which the device maps like its own, are counted apart.
//
// Creation is all or nothing. A handle that the driver refuses to release stays counted and is
// tried again later: reserved_bytes() never says less than the device has given.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless {

class PhysicalMemory {
 public:
  PhysicalMemory(Driver& driver, DeviceIndex device, std::uint64_t page_bytes,
                 ShareType share = ShareType::none)
      : driver_(driver), device_(device), page_bytes_(page_bytes), share_(share) {}

  [[nodiscard]] std::uint64_t page_bytes() const { return page_bytes_; }
  /// How its memory may be given to another process.
  [[nodiscard]] ShareType share() const { return share_; }
  /// Of the device.
  [[nodiscard]] std::uint64_t reserved_bytes() const {
    return (live_ + unreleased_.size() - on_host_.size()) * page_bytes_;
  }
  [[nodiscard]] std::uint64_t host_bytes() const { return on_host_.size() * page_bytes_; }
  [[nodiscard]] bool any_on_host() const { return !on_host_.empty(); }
  [[nodiscard]] bool is_on_host(MemHandle handle) const { return on_host_.contains(handle); }
  [[nodiscard]] std::uint64_t limit_bytes() const { return limit_bytes_; }
  void set_limit_bytes(std::uint64_t limit) { limit_bytes_ = limit; }
  /// What others have of the device that count against the same limit.
  void set_reserved_elsewhere(std::function<std::uint64_t()> bytes) {
    elsewhere_bytes_ = std::move(bytes);
  }
  /// Whether `count` more pages stay within the limit.
  [[nodiscard]] bool within_limit(std::uint64_t count) const {
    const std::uint64_t elsewhere = elsewhere_bytes_ ? elsewhere_bytes_() : 0;
    return elsewhere + reserved_bytes() + count * page_bytes_ <= limit_bytes_;
  }

  /// Leaves so much of the device free.
  void set_headroom_bytes(std::uint64_t bytes) { headroom_bytes_ = bytes; }

  /// Fills `handles`, or changes nothing. out_of_memory also where the limit would be passed, or
  /// less would be left than the headroom.
  DriverStatus create(std::span<MemHandle> handles);
  /// The same in host memory, which has no limit here.
  DriverStatus create_on_host(std::span<MemHandle> handles);
  /// The memory goes when its last mapping has gone.
  void release(std::span<const MemHandle> handles);
  /// Tries again what the driver refused to release.
  void retry_releases();

  [[nodiscard]] std::uint64_t created() const { return created_; }
  [[nodiscard]] std::uint64_t released() const { return released_; }
  [[nodiscard]] std::size_t unreleased() const { return unreleased_.size(); }

 private:
  DriverStatus create(std::span<MemHandle> handles, bool on_host);
  void release_one(MemHandle handle);
  [[nodiscard]] bool leaves_headroom(std::uint64_t count) const;

  Driver& driver_;
  DeviceIndex device_;
  std::uint64_t page_bytes_;
  ShareType share_;
  std::uint64_t limit_bytes_ = UINT64_MAX;
  std::function<std::uint64_t()> elsewhere_bytes_;
  std::uint64_t headroom_bytes_ = 0;
  std::uint64_t live_ = 0;
  std::uint64_t created_ = 0;
  std::uint64_t released_ = 0;
  std::vector<MemHandle> unreleased_;
  std::unordered_set<MemHandle> on_host_;  // of those live and those unreleased
};

}  // namespace gapless
