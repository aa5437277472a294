// AddressSpace: address ranges reserved from the driver, cut into pieces, mapped and unmapped.
//
//   reservation  [ piece A (mapped) | free | piece B (mapped) |        free         ]
//                 take() cuts a piece off, put_back() joins it to its free neighbours
//
// Reservations cost nothing but addresses, so they are large and few; of these a process has 128
// TiB, so there is a bound. Mapping is all or nothing: n mem_map calls and one mem_set_access over
// the whole range (which is the dear one). Where the driver refuses to undo half a mapping, the
// range is set aside and tried again later; it is never handed out while something may be mapped in
// it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/memory/memory_piece.h"

namespace gapless {

class AddressSpace {
 public:
  /// Reserves `reservation_bytes` at a time (or what one piece needs, if that is more, or less if
  /// the driver has not that many), `most_bytes` in all.
  AddressSpace(Driver& driver, DeviceIndex device, std::uint64_t reservation_bytes,
               std::uint64_t most_bytes = UINT64_MAX)
      : driver_(driver),
        device_(device),
        reservation_bytes_(reservation_bytes),
        most_bytes_(most_bytes) {}
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// Cuts a piece of `bytes` (a multiple of the page size) out of the lowest free range;
  /// out_of_memory where there are no addresses for it.
  DriverStatus take(std::uint64_t bytes, DeviceAddress& address);
  /// The piece, in which nothing is mapped, is free again.
  void put_back(DeviceAddress address, std::uint64_t bytes);

  struct Mapping {
    DeviceAddress address = 0;
    MemoryPiece piece;

    [[nodiscard]] DeviceAddress end() const { return address + piece.bytes; }
  };
  /// Maps pieces, by rising address, and gives the device access from the first to the last, or
  /// changes nothing. What lies between them must be mapped already.
  DriverStatus map(std::span<const Mapping> mappings);
  /// The same for one piece after the other from `address` on.
  DriverStatus map(DeviceAddress address, std::span<const MemoryPiece> pieces);
  /// Gives that device access too, from now on to all that is mapped; what is mapped already needs
  /// give_access().
  void add_peer(DeviceIndex peer) { peers_.push_back(peer); }
  /// Gives the device access to a range that is mapped without a gap.
  DriverStatus give_access(DeviceAddress address, std::uint64_t bytes, DeviceIndex device) {
    return driver_.mem_set_access(address, bytes, device);
  }
  /// Unmaps a range of whole mappings. Where the driver refuses, nothing changes.
  DriverStatus unmap(DeviceAddress address, std::uint64_t bytes);

  /// Unmaps what could not be unmapped when a mapping failed halfway. False while any is left.
  bool clear_leftovers();
  /// Whether such a leftover lies in the range.
  [[nodiscard]] bool has_leftover(DeviceAddress address, std::uint64_t bytes) const;

  [[nodiscard]] std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  /// In pieces that were taken.
  [[nodiscard]] std::uint64_t taken_bytes() const { return taken_bytes_; }

  /// Gives every reservation back; nothing may be mapped in them any more.
  DriverStatus release_all();

 private:
  /// A new reservation with room for that much.
  DriverStatus reserve(std::uint64_t bytes);

  Driver& driver_;
  DeviceIndex device_;
  std::uint64_t reservation_bytes_;
  std::uint64_t most_bytes_;
  std::uint64_t reserved_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;
  std::vector<DeviceIndex> peers_;
  std::map<DeviceAddress, std::uint64_t> reservations_;
  std::map<DeviceAddress, std::uint64_t> free_;
  std::map<DeviceAddress, std::uint64_t> leftovers_;
};

}  // namespace gapless
