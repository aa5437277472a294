// DeviceHeap: the home and the windows of one device on top of real pages, and the miss ladder.
//
//   request --> a hole of the home that fits                    no driver call
//           --> a run of free pages in a window made before     no driver call
//           --> new pages at the home's end, while copies grow  create, map, set access
//           --> a window repaired, extended or made over        unmap, map, set access (one)
//               scattered free pages, plus the missing ones
//           --> it cannot fit: out of memory                    the device is asked what it has
//           --> wait for all streams' frees, search again
//           --> out of memory
//
// Reserved memory therefore grows only when the free pages do not add up to the request (or a
// little ahead, while a program loads). Single-threaded; device_allocator.h locks. Every step is a
// transaction: when a driver call fails, all is as it was before the step, and the search goes on
// with other memory. What streams refuse to be waited for is set aside meanwhile. A request fails
// only if it does not fit, or if the driver refused (docs/design.md, "Rules that hold always").
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/base/status.h"
#include "allocator/device/demand.h"
#include "allocator/device/earlier_users.h"
#include "allocator/device/home_mapper.h"
#include "allocator/device/known_places.h"
#include "allocator/device/options.h"
#include "allocator/device/pool_memory.h"
#include "allocator/device/refused_memory.h"
#include "allocator/device/room.h"
#include "allocator/device/spill_budget.h"
#include "allocator/device/stream_demand.h"
#include "allocator/device/terms.h"
#include "allocator/device/window_mapper.h"
#include "allocator/heap/home.h"
#include "allocator/heap/loading.h"
#include "allocator/heap/placement.h"
#include "allocator/stream/stream_ledger.h"

namespace gapless {

/// What the heap did so far, beside what it holds.
struct HeapCounters {
  std::uint64_t home_growths = 0;
  std::uint64_t retries = 0;  // searched again after waiting for the device
  std::uint64_t waits = 0;    // of one stream for another, on the device
  WindowCounters windows;
};

/// Memory that came to an address, or left it.
struct MappingChange {
  bool mapped = false;  // false: left
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;
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
    DriverStatus refusal = DriverStatus::ok;  // why there is none; out_of_memory: the lack of that

    static Placed failed(DriverStatus refusal) {
      const bool full = refusal == DriverStatus::out_of_memory;
      return {full ? Status::out_of_memory : Status::driver_error, 0, 0, refusal};
    }
  };

  /// A block of `size` units for `owner`.
  Placed place(Unit size, Owner owner, const Demand& demand) {
    if (streams_.several()) return place_among_streams(size, owner, demand);
    const Placed placed = place_in_hole(size, owner);
    return placed.block != 0 ? placed : place_after_miss(size, owner, demand);
  }
  /// The same where a hole fits and there is only one stream: what most requests come to. Block 0:
  /// there is none.
  Placed place_in_hole(Unit size, Owner owner) {
    const Fit fit = placement_.fit(size, owner);
    return fit.hole != 0 ? in_hole(fit, size) : Placed{};
  }
  // --- private pools (pools.h) ------------------------------------------------------------------

  /// What pools have free, and whose it is.
  [[nodiscard]] PoolMemory& pools() { return pools_; }
  [[nodiscard]] const PoolMemory& pools() const { return pools_; }
  /// The owner of a block that is used on `stream` too.
  Owner owner_with_use(Owner owner, const DeviceStream& stream);
  /// A block of `size` units in the pool of `owner`; `general` is the same streams outside of it.
  /// `capturing`: a graph is; then nothing is waited for, and no event touched.
  Placed place_in_pool(Unit size, Owner owner, Owner general, bool capturing, const Demand& demand);
  /// A block at that place, which is free in the owner's pool (known_places.h, after the others
  /// left).
  Placed place_at(const Place& place, Owner owner);
  /// A block of `size` units at that address, of the home or of a window, where all of it is free
  /// memory that the owner may have as it is; invalid_argument where it is not. `capturing`: a
  /// graph is.
  Placed place_at_address(DeviceAddress address, Unit size, Owner owner, bool capturing);
  /// A block of `size` units that begins and ends with a page, which it shares with no other.
  Placed place_in_whole_pages(Unit size, Owner owner, Owner general, bool capturing);
  /// Gives the pages back to the device that hold only the pool's `blocks` (all of them that live)
  /// and holes, and keeps every address. Waits for the device. On failure all is as it was, unless
  /// the driver refuses that too.
  DriverStatus sleep(PoolIndex pool, std::span<const BlockId> blocks);
  /// Before a graph may be captured: what is done is known then.
  void prepare_capture();
  /// That memory is everyone's now (PoolMemory::open), for a request of `size` units; false, and
  /// all is as it was, where it could not be had even so.
  bool open_pools(std::span<const PoolIndex> pools, Unit size) {
    return pools_.open(pools, pages_lacking(size), room_);
  }
  /// What is left for that pool (lenders.h) the requests from now on may have; 0: no pool's.
  void serve(PoolIndex pool) { room_.serve(pool); }
  /// Where blocks lie, for place_at().
  [[nodiscard]] KnownPlaces known_places() const {
    return {blocks_, home_, home_mapper_, mapper_, streams_.sets()};
  }

  // --- the last resort (spill.cc) ---------------------------------------------------------------

  /// A block that lies in host memory as far as the device has none; out_of_memory where the option
  /// does not allow that much, or the device cannot map it.
  Placed place_in_spill(Unit size, Owner owner, const Demand& demand);
  /// Host memory the device maps now.
  [[nodiscard]] std::uint64_t spilled_bytes() const { return memory().host_bytes(); }
  [[nodiscard]] bool can_spill() const { return spill_.is_allowed(); }
  /// Whether that unit of the home lies there.
  [[nodiscard]] bool is_spilled(Unit unit) const {
    return home_mapper_.is_on_host(unit >> page_shift_);
  }

  // --- for other processes ----------------------------------------------------------------------

  /// How memory may be given to them; none where it may not.
  [[nodiscard]] ShareType share() const { return vmm_ ? memory().share() : ShareType::none; }
  /// The physical memory behind a live block, and where in the first piece it begins.
  [[nodiscard]] std::vector<MemoryPiece> pieces_of(BlockId block,
                                                   std::uint64_t& offset_bytes) const;

  /// The block is free again; `owner` used it.
  void free(BlockId block, Owner owner) {
    if (streams_.several()) [[unlikely]] {
      free_among_streams(block, owner);
      return;
    }
    free_block(block, owner, streams_.note_free_of_only_stream());
  }

  /// That device may touch all memory too, now and from now on. Where the driver refuses, it may
  /// touch some.
  DriverStatus add_peer(DeviceIndex peer);
  /// Is told where memory lies, as blocks see it: a home's range that a block in a window uses has
  /// left the home for as long. Empty: nobody is.
  void set_mapping_observer(std::function<void(const MappingChange&)> observer) {
    on_mapping_ = std::move(observer);
  }

  /// Returns wholly free pages and idle windows to the driver, until at most `keep_bytes` are
  /// reserved. Waits for the device; capture_unsupported where a graph is captured. Where the
  /// driver refuses to take some, `unknown` or its answer, and the rest is returned.
  DriverStatus trim(std::uint64_t keep_bytes);
  /// Returns everything; invalid_value where a block is live.
  DriverStatus release_all();

  [[nodiscard]] std::uint64_t reserved_bytes() const { return home_mapper_.reserved_bytes(); }
  [[nodiscard]] std::uint64_t limit_bytes() const { return memory().limit_bytes(); }
  void set_limit_bytes(std::uint64_t bytes) {
    memory().set_limit_bytes(bytes);
    room_.forget();
  }
  /// Nothing comes ahead of need that would be given back because of it.
  void set_soft_limit_bytes(std::uint64_t bytes) { options_.soft_limit = bytes; }
  /// What other heaps reserve of the device under the same limit.
  void set_reserved_elsewhere(std::function<std::uint64_t()> bytes) {
    memory().set_reserved_elsewhere(std::move(bytes));
  }
  /// Whether so much of the device stays free for others (option headroom).
  void keep_headroom(bool keep) { memory().set_headroom_bytes(keep ? options_.headroom : 0); }
  [[nodiscard]] std::uint64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] bool uses_vmm() const { return vmm_; }

  [[nodiscard]] BlockTable& blocks() { return blocks_; }
  [[nodiscard]] const BlockTable& blocks() const { return blocks_; }
  [[nodiscard]] const Home& home() const { return home_; }
  void reset_hole_peak() { home_.reset_hole_peak(); }
  [[nodiscard]] const Windows& windows() const { return mapper_.windows(); }
  [[nodiscard]] WindowAddresses window_addresses() const { return mapper_.addresses(); }
  [[nodiscard]] StreamLedger& streams() { return streams_; }
  [[nodiscard]] const StreamLedger& streams() const { return streams_; }
  [[nodiscard]] HeapCounters counters() const {
    return {home_mapper_.growths(), retries_, streams_.waits(), mapper_.counters()};
  }
  /// Changes with every request that found no hole, which alone may change reserved memory.
  [[nodiscard]] std::uint64_t changes() const { return misses_; }
  [[nodiscard]] std::uint64_t pages_created() const { return home_mapper_.pages_created(); }
  [[nodiscard]] std::uint64_t pages_released() const { return home_mapper_.pages_released(); }
  /// Whether that much could be had, were all that is free here the request's: false only where it
  /// is known that it could not. Asks the device how much it has left.
  [[nodiscard]] bool could_fit(Unit size);

  /// The address of a unit of the home, whose page is present.
  [[nodiscard]] DeviceAddress home_address(Unit unit) const {
    return home_mapper_.address_of(unit);
  }
  /// The address of a live or window block.
  [[nodiscard]] DeviceAddress address_of(BlockId id) const {
    const Block& block = blocks_[id];
    if (block.state != BlockState::window) return home_address(block.begin);
    return mapper_.windows().at(block.prev).address + std::uint64_t{block.begin} * kUnitBytes;
  }
  /// The largest request `owner` could have now without new memory, in units.
  [[nodiscard]] std::uint64_t largest_request(Owner owner) const;

  /// Throws std::logic_error saying what is wrong, if anything is.
  void validate() const;

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  Placed in_hole(const Fit& fit, Unit size) {
    const BlockId block = home_.carve(fit.hole, {fit.begin, size}, BlockState::live);
    placement_.note_made(block);
    return {Status::ok, block, home_address(fit.begin)};
  }
  void free_block(BlockId block, Owner owner, Epoch epoch) {
    placement_.note_freed(block);
    if (blocks_[block].state == BlockState::live) [[likely]] {
      home_.free(block, owner_of_free(blocks_[block].begin, owner), epoch);
    } else {
      free_in_window(block, owner, epoch);
    }
  }
  void free_in_window(BlockId block, Owner owner, Epoch epoch);

  // --- spilled (spill.cc) -----------------------------------------------------------------------

  /// Whose memory there is free, when `owner` used it.
  [[nodiscard]] Owner owner_of_free(Unit unit, Owner owner) {
    return is_spilled(unit) ? pools_.owner_in(owner, kSpillPool) : owner;
  }
  [[nodiscard]] bool may_spill(std::uint64_t pages) const {
    return pages * page_bytes_ <= spill_.bytes_left(memory().host_bytes());
  }
  /// `host_pages`: that may come from there.
  Placed place_in_spilled(Unit size, Owner owner, std::uint64_t host_pages);
  /// Gives host memory back that is wholly free; the device must be idle. False where the driver
  /// refused.
  bool give_back_spilled();
  /// The same after waiting for the device, where nothing lives there any more and the program did
  /// without it for a while.
  void give_back_idle_spill(const Demand& demand);

  // --- private pools (in_pools.cc) --------------------------------------------------------------

  Placed place_in_own_pool(Unit size, Owner owner, bool capturing);
  /// Where the pool's own memory is not enough: everyone's and new memory, with what is free in the
  /// pool where that takes fewer new pages, or nothing else is left.
  Placed place_beyond_pool(Unit size, Owner owner, Owner general, const Demand& demand);
  /// Whether the pool's free pages would spare new ones.
  [[nodiscard]] bool pool_spares_pages(Unit size, Owner owner, Owner general);
  /// All that is free in the owner's pool and outside of any.
  [[nodiscard]] Reach in_pool_and_beside(Owner owner);
  Placed place_for_capture(Unit size, Owner owner, const Demand& demand);
  Placed take_whole_pages(Unit size, Owner owner, Owner general, bool capturing);
  /// A block was made in a capture. The window that it lies in, if it lies in one, is pinned.
  void note_captured(const Placed& placed, Owner owner);
  /// Waits for the device if pools were given up, and takes their memory. False where there is
  /// none.
  bool reclaim_given_up();

  // --- with several streams (stream/) -----------------------------------------------------------

  /// place() where the streams must be told apart.
  Placed place_among_streams(Unit size, Owner owner, const Demand& demand);
  void free_among_streams(BlockId block, Owner owner);
  /// Whether the second stream was seen, or a new one, or streams are held apart from now on or not
  /// any more is noted.
  void note_streams();
  /// Whether what streams free stays theirs: while a graph may be captured (what one stream freed
  /// can be come after then, while another refuses), and where none may have another's.
  [[nodiscard]] bool holds_apart() const {
    return options_.cross_stream == CrossStream::never || streams_.watches_captures();
  }
  /// What streams freed so many epochs ago or before is everyone's from now on.
  void settle(Epoch age);
  class Choice;
  /// in_hole() where the hole may be another's.
  Placed in_hole_of_any(const Fit& fit, Unit size, const Terms& terms);
  /// search_again() where the streams must be told apart.
  Placed search_among_streams(Unit size, Owner owner, const Demand& demand);
  /// The request in memory that nobody has to be waited for and new memory, within the budget.
  /// `may_wait`: there is a place in which it would have to wait. Nothing: it was not tried.
  std::optional<Placed> place_without_wait(Unit size, Reach done, bool may_wait,
                                           const Demand& demand);
  /// Whether so many new pages are little enough to spare a wait: the option's share of the peak,
  /// and not more than streams ask for.
  [[nodiscard]] bool within_budget(std::uint64_t missing, const Demand& demand) const;

  void note_mapping(bool mapped, DeviceAddress address, std::uint64_t bytes) const {
    if (on_mapping_) [[unlikely]]
      on_mapping_({mapped, address, bytes});
  }
  void note_mapping(bool mapped, PageRange pages) const {
    note_mapping(mapped, home_mapper_.address_of_page(pages.first), pages.count * page_bytes_);
  }
  /// A block begins or ends to use ranges of the home in a window.
  void note_lent(bool begins, BlockId block) const;
  Placed in_window(const WindowSpot& spot, const Terms& terms);
  Placed place_after_miss(Unit size, Owner owner, const Demand& demand);
  /// Whether memory of pools, given up or lent, is everyone's now, for a request that lacks pages.
  bool take_from_pools(Unit size, Reach reach);
  Placed search_again(Unit size, Owner owner, const Demand& demand);
  /// The last resorts of a request that may fit.
  Placed search_everywhere(Unit size, Owner owner, const Demand& demand);
  /// The last one where there are no windows: free segments that cannot be joined go back to the
  /// driver, as many as make room.
  Placed place_after_trim(Unit size, Owner owner, const Demand& demand);
  class Request;
  void begin_request();
  void end_request();
  /// Tries a search, again while streams refuse more than before (refused_memory.h).
  template <class F>
  Placed search(Owner owner, F&& f, bool unordered = false) {
    if (!unordered) streams_.ask_refusals(owner);
    if (streams_.any_refusal()) (void)refused_.set_aside(owner);
    for (;;) {
      refusal_ = DriverStatus::out_of_memory;
      const Placed placed = f();
      if (placed.status == Status::ok) return placed;
      if (streams_.newly_refused() && refused_.set_aside(owner)) continue;
      const DriverStatus refusal = streams_.refusal_error();
      return refusal == DriverStatus::ok ? placed : failure(refusal);
    }
  }

  // --- on given terms (place_on_terms.cc) -------------------------------------------------------

  /// The request on those terms.
  Placed place_on(Unit size, const Terms& terms, const Demand& demand);
  /// The same without mapping anything.
  Placed place_as_it_is(Unit size, const Terms& terms);
  /// The same by what must be mapped: a window, or that growth where it is no more memory.
  Placed map_window_or_grow(Unit size, const Terms& terms, const std::optional<PageRange>& growth);
  [[nodiscard]] std::optional<PageRange> growth_on(Unit size, const Terms& terms) const;
  Placed grow_and_place(PageRange pages, Unit size, const Terms& terms);
  /// Creates so many pages; those created are in `added`, also after a failure.
  DriverStatus create_pages(PageId count, Owner owner, FrameOrder order, bool on_host,
                            std::vector<PageRange>& added);
  [[nodiscard]] WindowPlan plan_on(Unit size, const Terms& terms) const;
  /// The plan when the pages that it lacked are there: a repair, where it was one (0: it was none)
  /// and still takes fewer calls than that.
  [[nodiscard]] WindowPlan plan_again(Unit size, const Terms& terms,
                                      std::uint32_t repair_below) const;
  /// The request in the window of that plan, which is carried out after those who used its memory.
  /// The pages that it lacks are created first.
  Placed place_by_plan(WindowPlan plan, Unit size, const Terms& terms,
                       std::uint32_t repair_below = 0, bool on_host = false);
  /// Carries the plan out; `spot` is where the request goes.
  DriverStatus map_window(WindowPlan plan, Unit size, const Terms& terms,
                          std::uint32_t repair_below, bool on_host, WindowSpot& spot);

  /// Reserved bytes up to which the home grows although free pages would add up, where copies grow:
  /// what windows would lose above what is live now. 0: none grow.
  [[nodiscard]] std::uint64_t copies_allowance() const;
  /// Units of the home that live blocks hold.
  [[nodiscard]] std::uint64_t live_units() const {
    return std::uint64_t{home_.present_pages()} * page_units_ - home_.free_units();
  }
  /// Pages that a request lacks beyond all that is free here, whosever that is.
  [[nodiscard]] std::uint64_t pages_lacking(Unit size) const;
  /// The end of a step that got no memory, after that answer of the driver.
  Placed failure(DriverStatus status);
  /// The same where the driver was not asked in it.
  [[nodiscard]] Placed failure() const { return Placed::failed(refusal_); }
  /// The largest frames in which so many more pages come now.
  [[nodiscard]] FrameOrder frame_order(PageId more) const;
  /// While a program loads, the last frame comes whole: it goes on.
  [[nodiscard]] PageRange with_rest_of_frame(PageRange pages);
  DriverStatus grow(PageRange pages, Owner owner, FrameOrder order, bool on_host = false);
  /// False, and nothing is changed, where the driver refused.
  bool ungrow(PageRange pages);
  /// The same of segments, until at most `keep_bytes` are reserved.
  DriverStatus ungrow_segments(std::uint64_t keep_bytes);
  /// Whether the search for memory ends with that: the request has some, or what streams refuse
  /// must be set aside before it goes on.
  [[nodiscard]] bool ends_search(const Placed& placed) const {
    return placed.status == Status::ok || streams_.newly_refused();
  }

  /// All that was freed belongs to anyone from now on.
  void settle_all();
  /// The same after waiting for the device.
  DriverStatus finish_streams();
  [[nodiscard]] PhysicalMemory& memory() { return home_mapper_.memory(); }
  [[nodiscard]] const PhysicalMemory& memory() const { return home_mapper_.memory(); }
  [[nodiscard]] bool use_windows() const { return vmm_ && options_.windows; }
  Placed place_there(const Place& place, const Terms& terms);

  Options options_;
  bool vmm_;
  std::uint64_t page_bytes_;
  Unit page_units_;
  unsigned page_shift_;
  BlockTable blocks_;
  Home home_;
  Placement placement_;
  Loading loading_;
  StreamLedger streams_;
  HomeMapper home_mapper_;
  WindowMapper mapper_;
  StreamDemand stream_demand_;
  EarlierUsers earlier_;
  int requests_ = 0;  // that are being served: one, and its parts
  PoolMemory pools_;
  Room room_;
  RefusedMemory refused_;
  SpillBudget spill_;
  std::uint64_t retries_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t device_bytes_;
  // What the driver refused in the search that goes on; out_of_memory: nothing but that.
  DriverStatus refusal_ = DriverStatus::out_of_memory;
  std::function<void(const MappingChange&)> on_mapping_;
};

/// While this lives, a request is served; one may be part of another.
class DeviceHeap::Request {
 public:
  explicit Request(DeviceHeap& heap) : heap_(heap) {
    if (heap_.requests_++ == 0) heap_.begin_request();
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (--heap_.requests_ == 0) heap_.end_request();
  }

 private:
  DeviceHeap& heap_;
};

}  // namespace gapless
