// WindowMapper: windows at real addresses. It finds, makes, extends, repairs and evicts them.
//
//   plan (heap/)   which page at which place  -->  unmap, map, set access  -->  window (heap/)
//
// A window's places may be unmapped only when no work uses them any more: when a completed event
// covers the last free in the window. Events are recorded rarely, and only in a program that goes
// on making windows: when the last block in any window is freed, or while a window is being made.
//
// What to do when a request needs a window: repair one where that takes the fewest driver calls,
// but do not take from a repeating program what it will come back to. A request of a size that
// missed before gets pages of its own, until there are many windows; one of a size never seen takes
// over what is there. Sizes that never repeat then pay for the difference between two steps only.
//
// Eviction: above `window_factor` mappings for each page and `window_floor` in all, the windows
// used least recently are retired, and unmapped when an event recorded then has completed. So
// addresses are bounded too, by four for each mapping; there is a bound of their own beside, for
// what lies scattered between them.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "allocator/device/options.h"
#include "allocator/heap/home.h"
#include "allocator/heap/window_planner.h"
#include "allocator/heap/windows.h"
#include "allocator/memory/address_space.h"
#include "allocator/stream/stream_ledger.h"

namespace gapless {

struct WindowCounters {
  std::uint64_t hits = 0;  // requests that a window made before could serve
  std::uint64_t made = 0;
  std::uint64_t extended = 0;
  std::uint64_t repaired = 0;
  std::uint64_t pages_mapped = 0;
  std::uint64_t evicted = 0;
};

/// Addresses are not memory, but a process has only so many.
struct WindowAddresses {
  std::uint64_t used_bytes = 0;       // that windows have, the retired ones too
  std::uint64_t reserved_bytes = 0;   // that there are for windows
  std::uint64_t retired_windows = 0;  // unmapped when their last use has completed
};

/// A place of a window, and the frame, by its first page, that belongs there.
struct WindowPlace {
  WindowId window = 0;
  std::uint32_t place = 0;
  PageId page = kNoPage;
};

class WindowMapper {
 public:
  WindowMapper(Driver& driver, DeviceIndex device, std::uint64_t page_bytes, Home& home,
               const BlockTable& blocks, StreamLedger& streams, const Options& options);

  [[nodiscard]] const Windows& windows() const { return windows_; }
  [[nodiscard]] const WindowCounters& counters() const { return counters_; }

  /// Room for the request in a window made before.
  [[nodiscard]] std::optional<WindowSpot> find(Unit size, Reach reach) {
    const auto spot = windows_.find(size, reach);
    if (spot) ++counters_.hits;
    return spot;
  }
  /// Whether that spot is mapped, in the window that was made at that address.
  [[nodiscard]] bool is_there(const WindowSpot& spot, DeviceAddress address) const;
  /// An extension or a new window (WindowPlanner::plan).
  [[nodiscard]] WindowPlan plan(Unit size, Reach reach) const { return planner_.plan(size, reach); }
  /// A new window, which needs the fewest wholly free pages.
  [[nodiscard]] WindowPlan plan_new(Unit size, Reach reach) const {
    return planner_.plan_new(size, reach);
  }
  /// plan() of wholly free pages only.
  [[nodiscard]] WindowPlan plan_whole_pages(Unit size, Reach reach) const {
    return WindowPlanner(home_, windows_, blocks_, false).plan(size, reach);
  }
  /// A repair that takes fewer calls than `instead` and takes nothing from a program that repeats.
  /// Where it lacks pages, it is planned again when they are there.
  std::optional<WindowPlan> plan_repair(Unit size, Reach reach, const WindowPlan& instead);
  /// The repair whose pages have been created.
  [[nodiscard]] std::optional<WindowPlan> plan_repair_again(Unit size, Reach reach,
                                                            std::uint32_t calls_below) const {
    return planner_.plan_repair(size, reach, idle_windows(), calls_below);
  }
  /// The home's units that a request of `size` units would have by a plan that lacks no page.
  [[nodiscard]] std::vector<UnitRange> home_ranges(const WindowPlan& plan, Unit size) const;
  /// Carries out a plan that lacks no page. `handles`: by page of the home, its frame's. On failure
  /// no block is affected; places of a repaired window may have lost their pages.
  DriverStatus map(const WindowPlan& plan, std::span<const MemHandle> handles, Unit size,
                   WindowSpot& spot);

  /// A block begins to live at that spot.
  void note_block(const WindowSpot& spot);
  /// The block that begins there was freed; `owner` used it.
  void note_free(WindowId window, Unit begin, Owner owner, Epoch epoch);

  /// A pinned window is neither unmapped nor repaired.
  void pin(WindowId window) { ++windows_.at(window).pins; }
  void unpin(WindowId window) { --windows_.at(window).pins; }

  /// Unmaps a frame, by its first page, in all windows; the device must be idle. Places under live
  /// blocks keep it and are added to `kept`, for map_places(); the others lose it.
  DriverStatus unmap_frame(PageId page, std::vector<WindowPlace>& kept);
  /// Maps their frames again; those that are mapped leave the list.
  DriverStatus map_places(std::vector<WindowPlace>& places, std::span<const MemHandle> handles);
  /// That place, which unmap_frame() kept, loses its frame.
  void forget_asleep(const WindowPlace& place);

  /// Unmaps retired windows whose last use has completed.
  void unmap_retired();
  /// Unmaps windows without live blocks; the device must be idle. False where the driver refused.
  bool unmap_idle();
  /// Unmaps these wholly free pages from the windows that hold them; the device must be idle. False
  /// where the driver refused.
  bool drop_pages(PageRange pages);
  /// Whether a window could not be made since there were no addresses for it. They come back with
  /// windows that are unmapped.
  [[nodiscard]] bool lacks_addresses() const { return lacks_addresses_; }
  [[nodiscard]] WindowAddresses addresses() const {
    return {space_.taken_bytes(), space_.reserved_bytes(), retiring_.size()};
  }
  /// Gives that device access to all windows, now and from now on.
  DriverStatus add_peer(DeviceIndex peer);
  /// Gives all addresses back; no window may be left.
  DriverStatus release_all() { return space_.release_all(); }

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  struct Retiring {
    WindowId window;
    std::vector<Epoch> after;  // by stream: the epoch that must have completed
  };

  /// Whether a request of that size missed before.
  bool missed_before(Unit size);
  /// The windows whose last frees are covered by completed events.
  [[nodiscard]] std::vector<WindowId> idle_windows() const;
  /// Closes the streams' epochs, if none is pending and enough was mapped since the last time.
  void record_events(bool force);
  /// A page's frame as physical memory.
  [[nodiscard]] MemoryPiece frame_of(PageId page, std::span<const MemHandle> handles) const;
  /// That place, which is not mapped, loses its frame.
  void forget_place(const WindowPlace& place);
  DriverStatus unmap_places(WindowId window, std::uint32_t begin, std::uint32_t end);
  /// Unmaps what a plan wants out of a window.
  DriverStatus clear_places(const WindowPlan& plan);
  bool unmap_window(WindowId window);
  /// Retires least recently used windows, but not `keep`, until mapped pages are within bounds.
  void evict(WindowId keep);
  void poll();
  /// Pages mapped in windows at most. Several streams have their memory in other orders with each
  /// step until they settle, and need more windows for that.
  [[nodiscard]] std::uint64_t most_mapped() const {
    return std::max(factor_ * (streams_.several() ? 2 : 1) * home_.present_pages(), floor_);
  }

  Home& home_;
  const BlockTable& blocks_;
  StreamLedger& streams_;
  std::uint64_t page_bytes_;
  std::uint64_t floor_;   // mappings that are always allowed: a small program has as many sizes
  std::uint64_t factor_;  // mappings per present page above which windows are evicted
  Windows windows_;
  WindowPlanner planner_;
  AddressSpace space_;
  bool lacks_addresses_ = false;
  std::deque<Retiring> retiring_;
  std::unordered_set<Unit> missed_;   // sizes
  std::uint64_t live_blocks_ = 0;     // in all windows
  std::uint64_t pages_at_event_ = 0;  // counters_.pages_mapped, when last recorded
  std::uint64_t pages_at_poll_ = 0;   // and when last asked
  WindowCounters counters_;
};

}  // namespace gapless
