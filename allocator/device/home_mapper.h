// HomeMapper: the home's pages at real addresses. It brings their memory and takes it away.
//
//   page       0    1    2    3    4    5    6         the home's addresses are reserved once
//   handle    [ a ][   b    ][ c ] --  --  [ d ]
//               \_ there       \     \_ absent         add(): create, map | holes of the home
//                               \_ asleep: present, but the device has its memory back
//
// Every step is a transaction: when a driver call fails, all is as it was before. Without virtual
// memory management the pages that come together are a segment of the driver's, and go together.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/device/options.h"
#include "allocator/heap/home.h"
#include "allocator/memory/address_space.h"
#include "allocator/memory/physical_memory.h"

namespace gapless {

/// What came of asking for pages.
struct Growth {
  DriverStatus status = DriverStatus::ok;
  bool device_is_full = false;  // it had no memory for them, though the limit would have let them
};

class HomeMapper {
 public:
  HomeMapper(Driver& driver, DeviceIndex device, bool vmm, std::uint64_t page_bytes,
             ShareType share, Home& home);

  [[nodiscard]] bool uses_vmm() const { return vmm_; }
  [[nodiscard]] std::uint64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] PhysicalMemory& memory() { return memory_; }
  [[nodiscard]] const PhysicalMemory& memory() const { return memory_; }

  // --- what there is ---------------------------------------------------------------------------

  [[nodiscard]] DeviceAddress address_of_page(PageId page) const { return address_[page]; }
  /// The address of a unit, whose page is present.
  [[nodiscard]] DeviceAddress address_of(Unit unit) const {
    return address_[unit >> page_shift_] + std::uint64_t{unit & (page_units_ - 1)} * kUnitBytes;
  }
  /// The unit at that address; nothing where its page is not there.
  [[nodiscard]] std::optional<Unit> unit_at(DeviceAddress address) const;
  /// By page: the handle of its frame; 0 where it has no memory.
  [[nodiscard]] std::span<const MemHandle> handles() const { return handle_; }
  [[nodiscard]] bool is_on_host(PageId page) const {
    return memory_.any_on_host() && memory_.is_on_host(handle_[page]);
  }
  /// The frames of a range of pages, with their handles where they have any.
  [[nodiscard]] std::vector<MemoryPiece> pieces_of(PageRange pages) const;
  /// Pages that are the device's, and not asleep.
  [[nodiscard]] PageId device_pages() const { return device_pages_; }
  [[nodiscard]] std::uint64_t reserved_bytes() const {
    return vmm_ ? memory_.reserved_bytes() : home_.present_pages() * page_bytes_;
  }
  [[nodiscard]] std::uint64_t pages_created() const { return vmm_ ? memory_.created() : growths_; }
  [[nodiscard]] std::uint64_t pages_released() const {
    return vmm_ ? memory_.released() : growths_ - segments_.size();
  }
  /// Pages that may be had still by the limit.
  [[nodiscard]] std::uint64_t limit_pages_left() const {
    const std::uint64_t left = memory_.limit_left_bytes() / page_bytes_;
    // A segment has no handle to be counted.
    return vmm_ ? left : left - std::min<std::uint64_t>(left, home_.present_pages());
  }
  /// How often pages came.
  [[nodiscard]] std::uint64_t growths() const { return growths_; }
  /// What the driver gave without virtual memory management.
  [[nodiscard]] const std::vector<PageRange>& segments() const { return segments_; }

  // --- pages come and go -----------------------------------------------------------------------

  /// Absent pages become free memory of `owner`, in frames of at most that order; of the host where
  /// that is asked for.
  Growth add(PageRange pages, Owner owner, FrameOrder order, bool on_host);
  /// Wholly free pages become absent. False, and nothing is changed, where the driver refused.
  bool remove(PageRange pages);
  /// The same of a segment.
  DriverStatus remove_segment(PageRange segment);
  /// A frame's memory goes back to the device, while the page keeps its place.
  DriverStatus put_to_sleep(PageId frame);
  /// Memory for frames that are asleep: those that have it leave the list.
  DriverStatus wake(std::vector<PageId>& frames);
  /// That device may touch all there is; from now on too once note_peer() was told.
  DriverStatus give_access(DeviceIndex peer);
  void note_peer(DeviceIndex peer) { space_.add_peer(peer); }
  /// Gives all addresses back; no page may be present.
  DriverStatus release_all();

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  /// The home's addresses, when its first page comes.
  DriverStatus take_addresses();
  Growth create_and_map(PageRange pages, bool on_host);
  DriverStatus add_segment(PageRange pages);
  /// From that page on, these are the home's frames.
  void note_pieces(PageId first, std::span<const MemoryPiece> pieces);
  void note_gone(PageRange pages) {
    std::fill_n(handle_.begin() + pages.first, pages.count, MemHandle{0});
  }

  Driver& driver_;
  DeviceIndex device_;
  bool vmm_;
  std::uint64_t page_bytes_;
  Unit page_units_;
  unsigned page_shift_;
  Home& home_;
  PhysicalMemory memory_;
  AddressSpace space_;
  std::vector<DeviceAddress> address_;  // by page
  std::vector<MemHandle> handle_;       // by page: its frame's
  std::vector<PageRange> segments_;     // without VMM: what mem_alloc gave
  PageId device_pages_ = 0;
  std::uint64_t growths_ = 0;
};

}  // namespace gapless
