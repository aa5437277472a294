// The memory of the simulated GPU: handles, reservations, mappings, plain allocations, contents.
//
//   addresses  0x7000'0000'0000 [ page 3 ][ page 1 ][  ...  ]  reservation A
//              0x7000'1000'0000 [ page 1 ][ page 9 ]           reservation B: page 1 twice (alias)
//   handles    1, 3, 9 ...   each `bytes` of one device, counted to the byte
//
// Addresses are given out ascending, first fit, as CUDA gives them. Contents are kept per handle in
// host memory, only where something was written, so aliases see each other by construction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/driver/driver.h"
#include "simgpu/address_ranges.h"
#include "simgpu/shared_contents.h"

namespace gapless::simgpu {

/// A stretch of one handle.
struct PhysicalRange {
  MemHandle handle = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  bool operator==(const PhysicalRange&) const = default;
};

struct Mapping {
  std::uint64_t bytes = 0;
  MemHandle handle = 0;
  /// Bit d: device d may touch it.
  std::uint64_t access = 0;
};

class MemoryModel {
 public:
  struct Device {
    std::uint64_t total_bytes = 0;
    std::uint64_t granularity_bytes = 0;
    std::uint64_t used_bytes = 0;
    std::uint64_t peak_used_bytes = 0;
    /// Host memory that it may map, and what handles take of it.
    std::uint64_t host_bytes = 0;
    std::uint64_t used_host_bytes = 0;
    /// What other processes take of it; nothing where none can.
    std::function<std::uint64_t()> used_elsewhere;
    /// Called when used_bytes has changed.
    std::function<void(std::uint64_t)> on_change;
    /// Called with used_bytes when memory has come that somebody can use: a context, plain memory,
    /// a handle with its first mapping. One that is made for a request which then fails, and is
    /// given back, never served anybody:
    ///
    ///   create 1, create 2, create 3: out of memory, release 1, 2     on_change each time
    ///   create 1, create 2, map 1: on_served                          and for map 2
    std::function<void(std::uint64_t)> on_served;

    void use(std::uint64_t bytes) {
      used_bytes += bytes;
      if (used_bytes > peak_used_bytes) peak_used_bytes = used_bytes;
      if (on_change) on_change(used_bytes);
    }
    void serve() const {
      if (on_served) on_served(used_bytes);
    }
    void give_back(std::uint64_t bytes) {
      used_bytes -= bytes;
      if (on_change) on_change(used_bytes);
    }
    [[nodiscard]] std::uint64_t free_bytes() const {
      const std::uint64_t used = used_bytes + (used_elsewhere ? used_elsewhere() : 0);
      return used < total_bytes ? total_bytes - used : 0;
    }
  };

  explicit MemoryModel(std::vector<Device> devices, std::uint64_t address_bytes = UINT64_MAX)
      : devices_(std::move(devices)), address_bytes_(address_bytes) {}

  [[nodiscard]] const Device& device(DeviceIndex index) const {
    return devices_[static_cast<std::size_t>(index)];
  }

  // The driver's calls. Each answers as the driver would; `misuse` says in words what was wrong
  // where the caller broke a rule (running out of memory is not misuse).
  DriverStatus create(DeviceIndex device, std::uint64_t bytes, const MemKind& kind,
                      MemHandle& handle, std::string& misuse);
  DriverStatus create(DeviceIndex device, std::uint64_t bytes, MemHandle& handle,
                      std::string& misuse) {
    return create(device, bytes, {}, handle, misuse);
  }
  DriverStatus release(MemHandle handle, std::string& misuse);
  /// One more release() will be needed.
  DriverStatus retain(MemHandle handle);
  DriverStatus reserve(std::uint64_t bytes, std::uint64_t alignment, DeviceAddress& address,
                       std::string& misuse);
  DriverStatus free_reservation(DeviceAddress address, std::uint64_t bytes, std::string& misuse);
  DriverStatus map(DeviceAddress address, std::uint64_t bytes, MemHandle handle,
                   std::string& misuse);
  DriverStatus unmap(DeviceAddress address, std::uint64_t bytes, std::string& misuse);
  DriverStatus set_access(DeviceAddress address, std::uint64_t bytes, DeviceIndex device,
                          std::string& misuse);
  DriverStatus alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address,
                     std::string& misuse);
  DriverStatus free(DeviceIndex device, DeviceAddress address, std::string& misuse);

  /// What lies behind [address, address + bytes) for `device`, in order; `misuse` says why not.
  std::optional<std::vector<PhysicalRange>> resolve(DeviceAddress address, std::uint64_t bytes,
                                                    DeviceIndex device, std::string& misuse) const;

  /// The mappings that intersect a range, by address.
  [[nodiscard]] std::vector<std::pair<DeviceAddress, Mapping>> mappings_in(
      DeviceAddress address, std::uint64_t bytes) const;

  // Between processes.
  /// The memory behind a handle, from now on where other processes can see it; nullptr where that
  /// cannot be had.
  std::shared_ptr<SharedContents> share(MemHandle handle);
  /// The kind the handle was created with; nothing for one that is not held.
  [[nodiscard]] std::optional<MemKind> kind_of(MemHandle handle) const;
  /// Its size; 0 for one that is not held.
  [[nodiscard]] std::uint64_t bytes_of(MemHandle handle) const;
  /// Whether it is mapped anywhere.
  [[nodiscard]] bool is_mapped(MemHandle handle) const;
  /// The handle that was shared under that SharedContents::id(); 0 where none was.
  [[nodiscard]] MemHandle shared_handle(std::uint64_t id) const;
  /// A handle of another process's memory, which that process is charged for.
  DriverStatus import(std::shared_ptr<SharedContents> contents, MemHandle& handle);
  /// The handle of what alloc() gave; 0 for an address that it did not give.
  [[nodiscard]] MemHandle plain_handle(DeviceAddress address) const;
  /// Addresses like alloc()'s for an imported handle; free() gives them back.
  DeviceAddress place_import(MemHandle handle);

  void write(const PhysicalRange& range, const unsigned char* source);
  void read(const PhysicalRange& range, unsigned char* target) const;
  /// What was written there is zeros again.
  void forget(const PhysicalRange& range);
  [[nodiscard]] bool has_contents(const PhysicalRange& range) const;
  /// The addresses that a handle is mapped at; nullptr where it is at no more than one.
  [[nodiscard]] const std::vector<DeviceAddress>* aliases(MemHandle handle) const {
    const auto found = handles_.find(handle);
    return found == handles_.end() || found->second.mapped_at.size() < 2 ? nullptr
                                                                         : &found->second.mapped_at;
  }
  /// Whether other processes may see any memory here.
  [[nodiscard]] bool shares() const { return shares_; }
  /// Whether other processes may see it, and write to it.
  [[nodiscard]] bool is_shared(MemHandle handle) const {
    const auto found = handles_.find(handle);
    return found != handles_.end() && found->second.shared != nullptr;
  }
  /// Host memory that contents take.
  [[nodiscard]] std::uint64_t kept_bytes() const { return *kept_bytes_; }

  /// Memory that the device has not: a context, another process's.
  void charge(DeviceIndex device, std::uint64_t bytes) {
    devices_[static_cast<std::size_t>(device)].use(bytes);
    devices_[static_cast<std::size_t>(device)].serve();
  }
  /// The device of a handle; -1 for one that is not held.
  [[nodiscard]] DeviceIndex device_of(MemHandle handle) const {
    const auto found = handles_.find(handle);
    return found == handles_.end() ? -1 : found->second.device;
  }

  [[nodiscard]] std::size_t live_handles() const;
  [[nodiscard]] std::size_t live_mappings() const { return mappings_.size(); }
  [[nodiscard]] std::size_t live_reservations() const { return reservations_.used().size(); }
  [[nodiscard]] std::size_t live_plain() const { return plain_.used().size(); }

 private:
  // 64 KiB of contents, counted while they live.
  struct Counted {
    std::shared_ptr<std::uint64_t> kept_bytes;
    void operator()(unsigned char* bytes) const;
  };
  using Chunk = std::unique_ptr<unsigned char[], Counted>;
  [[nodiscard]] Chunk make_chunk() const;

  struct Handle {
    DeviceIndex device = 0;
    std::uint64_t bytes = 0;
    std::vector<DeviceAddress> mapped_at;
    std::uint64_t held = 1;  // by whom it was made, and who retained it
    bool released = false;
    bool charged = true;  // false: another process's
    bool served = false;  // it was mapped before, or other processes can map it
    MemKind kind;
    std::unordered_map<std::uint64_t, Chunk> chunks;
    std::shared_ptr<SharedContents> shared;  // in place of chunks
  };
  [[nodiscard]] std::uint64_t granularity() const;
  void drop_if_unused(MemHandle handle);
  void serve(Handle& handle);
  [[nodiscard]] bool inside_reservation(DeviceAddress address, std::uint64_t bytes) const;

  std::vector<Device> devices_;
  std::shared_ptr<std::uint64_t> kept_bytes_ = std::make_shared<std::uint64_t>(0);
  std::unordered_map<MemHandle, Handle> handles_;
  MemHandle next_handle_ = 1;
  std::map<std::uint64_t, MemHandle> shared_;  // by SharedContents::id()
  bool shares_ = false;
  AddressRanges reservations_{0x7000'0000'0000};
  std::uint64_t address_bytes_;  // that may be reserved still
  std::map<DeviceAddress, Mapping> mappings_;
  AddressRanges plain_{0x0200'0000'0000};  // mem_alloc
  std::map<DeviceAddress, MemHandle> plain_handles_;
};

}  // namespace gapless::simgpu
