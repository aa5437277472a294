// DeviceHeap: the home and the windows of one device on top of real pages, and the miss ladder.
//
//   request --> a hole of the home that fits                    no driver call
//           --> a run of free pages in a window made before     no driver call
//           --> new pages at the home's end, within the slack   create, map, set access
//           --> a new window over scattered free pages          map, set access (one for all)
//               (plus the pages that are missing)
//           --> wait for other streams' frees, search again
//           --> out of memory
//
// Reserved memory therefore grows only when the free pages do not add up to the request (or by the
// slack, a little ahead, to save windows). Single-threaded; device_allocator.h locks. Every step is
// a transaction: when a driver call fails, all is as it was before the step.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "allocator/base/status.h"
#include "allocator/device/options.h"
#include "allocator/heap/home.h"
#include "allocator/heap/window_planner.h"
#include "allocator/heap/windows.h"
#include "allocator/memory/address_space.h"
#include "allocator/memory/physical_memory.h"
#include "allocator/stream/stream_ledger.h"

namespace gapless {

/// What the heap did so far, beside what it holds.
struct HeapCounters {
  std::uint64_t home_growths = 0;
  std::uint64_t windows_made = 0;
  std::uint64_t windows_extended = 0;
  std::uint64_t window_pages_made = 0;
  std::uint64_t windows_evicted = 0;
  std::uint64_t window_hits = 0;
  std::uint64_t retries = 0;  // searched again after waiting for the device
};

class DeviceHeap {
 public:
  DeviceHeap(Driver& driver, DeviceIndex device, const DeviceProperties& properties,
             const Options& options);
  /// All memory must have been returned with release_all(), or it stays with the driver.
  ~DeviceHeap() = default;

  struct Placed {
    Status status = Status::ok;
    BlockId block = 0;
    DeviceAddress address = 0;
  };

  /// A block of `size` units for `owner`. `peak_bytes`: peak allocated with this request in it.
  Placed place(Unit size, Owner owner, std::uint64_t peak_bytes) {
    if (const Fit fit = home_.fit(size, owner); fit.hole != 0) return in_hole(fit, size);
    return place_after_miss(size, owner, peak_bytes);
  }
  /// The block is free again for the stream `owner`.
  void free(BlockId block, Owner owner) {
    const Epoch epoch = streams_.open_epoch(owner);
    if (blocks_[block].state == BlockState::live) {
      home_.free(block, owner, epoch);
    } else {
      free_in_window(block, owner, epoch);
    }
  }

  /// Returns wholly free pages and idle windows to the driver, until at most `keep_bytes` are
  /// reserved. Waits for the device.
  Status trim(std::uint64_t keep_bytes);
  /// Returns everything; no block may be live.
  Status release_all();

  [[nodiscard]] std::uint64_t reserved_bytes() const;
  [[nodiscard]] std::uint64_t limit_bytes() const { return physical_.limit_bytes(); }
  void set_limit_bytes(std::uint64_t bytes) {
    physical_.set_limit_bytes(bytes);
    ceiling_pages_ = UINT64_MAX;
  }
  [[nodiscard]] std::uint64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] bool uses_vmm() const { return vmm_; }

  [[nodiscard]] BlockTable& blocks() { return blocks_; }
  [[nodiscard]] const BlockTable& blocks() const { return blocks_; }
  [[nodiscard]] const Home& home() const { return home_; }
  [[nodiscard]] const Windows& windows() const { return windows_; }
  [[nodiscard]] StreamLedger& streams() { return streams_; }
  [[nodiscard]] const StreamLedger& streams() const { return streams_; }
  [[nodiscard]] const HeapCounters& counters() const { return counters_; }
  /// Changes with every request that found no hole, which alone may change reserved memory.
  [[nodiscard]] std::uint64_t changes() const { return misses_; }
  [[nodiscard]] std::uint64_t pages_created() const;
  [[nodiscard]] std::uint64_t pages_released() const;
  /// The last driver error that stopped a request.
  [[nodiscard]] DriverStatus last_driver_status() const { return last_driver_status_; }

  /// The address of a unit of the home, whose page is present.
  [[nodiscard]] DeviceAddress home_address(Unit unit) const {
    return page_address_[unit >> page_shift_] +
           std::uint64_t{unit & (page_units_ - 1)} * kUnitBytes;
  }
  /// The address of a live or window block.
  [[nodiscard]] DeviceAddress address_of(BlockId id) const {
    const Block& block = blocks_[id];
    if (block.state != BlockState::window) return home_address(block.begin);
    return windows_.at(block.prev).address + std::uint64_t{block.begin} * kUnitBytes;
  }
  /// The largest request `owner` could have now without new memory, in units.
  [[nodiscard]] std::uint64_t largest_request(Owner owner) const;

  /// Throws std::logic_error saying what is wrong, if anything is.
  void validate() const;

 private:
  struct Retiring {
    WindowId window;
    std::vector<Epoch> after;  // by stream: the epoch that must have completed
  };

  Placed in_hole(const Fit& fit, Unit size) {
    const BlockId block = home_.carve(fit.hole, {fit.begin, size}, BlockState::live);
    return {Status::ok, block, home_address(fit.begin)};
  }
  void free_in_window(BlockId block, Owner owner, Epoch epoch);
  Placed in_window(const WindowSpot& spot, Owner owner);
  Placed place_after_miss(Unit size, Owner owner, std::uint64_t peak_bytes);
  Placed try_ladder(Unit size, Owner owner, std::uint64_t peak_bytes);

  /// Reserved bytes up to which the home grows although free pages would add up.
  [[nodiscard]] std::uint64_t growth_allowance(std::uint64_t peak_bytes) const;
  DriverStatus grow(PageRange pages, Owner owner);
  DriverStatus grow_plain(PageRange pages, Owner owner);
  void ungrow(PageRange pages);
  /// Carries a plan out; `spot` is where the request goes.
  DriverStatus make_window(WindowPlan plan, Unit size, Owner owner, WindowSpot& spot);

  /// Lets other streams' completed frees through.
  void collect_completed();
  void settle(Owner owner, Epoch completed) { home_.settle(owner, completed); }
  /// Retires least recently used windows, but not `keep`, until mapped pages are within bounds.
  void evict_windows(WindowId keep);
  void unmap_retired();
  bool unmap_window(WindowId window);
  /// Unmaps wholly free pages from the windows that hold them; false where the driver refused.
  bool drop_from_windows(PageRange pages);

  Driver& driver_;
  DeviceIndex device_;
  Options options_;
  bool vmm_;
  std::uint64_t page_bytes_;
  Unit page_units_;
  unsigned page_shift_;
  BlockTable blocks_;
  Home home_;
  Windows windows_;
  WindowPlanner planner_;
  StreamLedger streams_;
  PhysicalMemory physical_;
  AddressSpace home_space_;
  AddressSpace window_space_;
  std::vector<DeviceAddress> page_address_;  // by page of the home
  std::vector<MemHandle> page_handle_;       // by page of the home
  std::vector<PageRange> plain_segments_;    // without VMM: what mem_alloc gave
  std::deque<Retiring> retiring_;
  HeapCounters counters_;
  std::uint64_t misses_ = 0;
  // The driver had no more than this many pages when last asked: no growth beyond it for comfort,
  // only where a request fails otherwise.
  std::uint64_t ceiling_pages_ = UINT64_MAX;
  DriverStatus last_driver_status_ = DriverStatus::ok;
};

}  // namespace gapless
