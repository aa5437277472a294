// PhysicalMemory: the handles of one device, counted against a limit.
//
//   limit 16 GiB:   [h1: 2 MiB][h2: 2 MiB][h3: 4 MiB] ...     reserved: their sum
//
// Handles of host memory, which the device maps like its own, are counted apart.
//
// Creation is all or nothing. A handle that the driver refuses to release stays counted and is
// tried again later: reserved_bytes() never says less than the device has given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/memory/memory_piece.h"

namespace gapless {

class PhysicalMemory {
 public:
  PhysicalMemory(Driver& driver, DeviceIndex device, ShareType share = ShareType::none)
      : driver_(driver), device_(device), share_(share) {}

  /// How its memory may be given to another process.
  [[nodiscard]] ShareType share() const { return share_; }
  /// Of the device.
  [[nodiscard]] std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  [[nodiscard]] std::uint64_t host_bytes() const { return host_bytes_; }
  [[nodiscard]] bool any_on_host() const { return !on_host_.empty(); }
  [[nodiscard]] bool is_on_host(MemHandle handle) const { return on_host_.contains(handle); }
  [[nodiscard]] std::uint64_t limit_bytes() const { return limit_bytes_; }
  void set_limit_bytes(std::uint64_t limit) { limit_bytes_ = limit; }
  /// What others have of the device that count against the same limit.
  void set_reserved_elsewhere(std::function<std::uint64_t()> bytes) {
    elsewhere_bytes_ = std::move(bytes);
  }
  /// How much more stays within the limit.
  [[nodiscard]] std::uint64_t limit_left_bytes() const {
    const std::uint64_t elsewhere = elsewhere_bytes_ ? elsewhere_bytes_() : 0;
    return limit_bytes_ - std::min(limit_bytes_, elsewhere + reserved_bytes_);
  }
  /// Whether so much more does.
  [[nodiscard]] bool within_limit(std::uint64_t bytes) const { return bytes <= limit_left_bytes(); }

  /// What the device has free now beyond the headroom; nothing where the driver does not say.
  [[nodiscard]] std::optional<std::uint64_t> free_on_device() const;
  /// Leaves so much of the device free.
  void set_headroom_bytes(std::uint64_t bytes) { headroom_bytes_ = bytes; }

  /// Makes memory of the sizes they say, or changes nothing. out_of_memory also where the limit
  /// would be passed, or less would be left than the headroom.
  DriverStatus create(std::span<MemoryPiece> pieces);
  /// The same in host memory, which has no limit here.
  DriverStatus create_on_host(std::span<MemoryPiece> pieces);
  /// The memory goes when its last mapping has gone.
  void release(std::span<const MemoryPiece> pieces);
  /// Tries again what the driver refused to release.
  void retry_releases();

  [[nodiscard]] std::uint64_t created() const { return created_; }
  [[nodiscard]] std::uint64_t released() const { return released_; }
  [[nodiscard]] std::size_t unreleased() const { return unreleased_.size(); }

 private:
  DriverStatus create(std::span<MemoryPiece> pieces, bool on_host);
  void release_one(const MemoryPiece& piece);

  Driver& driver_;
  DeviceIndex device_;
  ShareType share_;
  std::uint64_t limit_bytes_ = UINT64_MAX;
  std::function<std::uint64_t()> elsewhere_bytes_;
  std::uint64_t headroom_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::uint64_t host_bytes_ = 0;
  std::uint64_t created_ = 0;
  std::uint64_t released_ = 0;
  std::vector<MemoryPiece> unreleased_;
  std::unordered_set<MemHandle> on_host_;  // of those live and those unreleased
};

}  // namespace gapless
