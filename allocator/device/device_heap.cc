#include "allocator/device/device_heap.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

std::uint64_t usable_page_bytes(const DeviceProperties& properties, const Options& options) {
  // Without VMM memory comes from cuMemAlloc, which hands out multiples of 2 MiB.
  const bool vmm = properties.has_vmm && options.vmm;
  return align_up(options.page_size, vmm ? properties.granularity_bytes : 2 * MiB);
}

// Addresses cost little, and a request is not to fail for the lack of them: pools that sleep keep
// theirs, and pages that were given back leave gaps. Where no windows join what is scattered, each
// request needs a place in one piece, and memory that is not contiguous keeps a page of distance.
constexpr std::uint64_t kHomeFactor = 4;
constexpr std::uint64_t kHomeFactorWithoutWindows = 8;

PageId home_pages(const DeviceProperties& properties, const Options& options,
                  std::uint64_t spill_bytes, std::uint64_t page_bytes) {
  const bool windows = properties.has_vmm && options.vmm && options.windows;
  const std::uint64_t pages = (properties.total_bytes + spill_bytes) / page_bytes;
  const std::uint64_t most = UINT32_MAX / (page_bytes / kUnitBytes) - 1;
  const std::uint64_t factor = windows ? kHomeFactor : kHomeFactorWithoutWindows;
  return static_cast<PageId>(std::min(factor * pages + 16, most));
}

std::uint64_t spill_of(const DeviceProperties& properties, const Options& options) {
  return properties.has_vmm && options.vmm && properties.can_map_host ? options.spill : 0;
}

ShareType share_of(const DeviceProperties& properties, const Options& options) {
  const bool can = options.share == ShareType::fd       ? properties.can_share_fd
                   : options.share == ShareType::fabric ? properties.can_share_fabric
                                                        : false;
  return can ? options.share : ShareType::none;
}

}  // namespace

DeviceHeap::DeviceHeap(Driver& driver, DeviceIndex device, const DeviceProperties& properties,
                       const Options& options)
    : options_(options),
      vmm_(properties.has_vmm && options.vmm),
      page_bytes_(usable_page_bytes(properties, options)),
      page_units_(static_cast<Unit>(page_bytes_ / kUnitBytes)),
      page_shift_(static_cast<unsigned>(std::countr_zero(page_units_))),
      home_(blocks_, page_units_,
            home_pages(properties, options, spill_of(properties, options), page_bytes_)),
      placement_(home_, blocks_),
      streams_(driver, device),
      home_mapper_(driver, device, vmm_, page_bytes_, share_of(properties, options), home_),
      mapper_(driver, device, page_bytes_, home_, blocks_, streams_, options),
      earlier_(home_, blocks_, streams_, options.cross_stream),
      pools_(blocks_, home_, streams_, home_mapper_, mapper_),
      room_(home_mapper_, pools_.lenders(), page_units_),
      refused_(home_, streams_),
      spill_(spill_of(properties, options)),
      device_bytes_(properties.total_bytes) {
  memory().set_limit_bytes(options.limit);
  keep_headroom(true);
}

// --- blocks ------------------------------------------------------------------------------------

DeviceHeap::Placed DeviceHeap::in_window(const WindowSpot& spot, const Terms& terms) {
  if (streams_.several()) {
    const DriverStatus status = earlier_.come_after(terms, mapper_.windows().home_ranges(spot));
    if (status != DriverStatus::ok) return failure(status);
  }
  const BlockId id = blocks_.make();
  Block& block = blocks_[id];
  block.state = BlockState::window;
  block.begin = spot.begin;
  block.size = spot.size;
  block.prev = spot.window;
  block.owner = terms.owner();
  BlockId last = 0;
  for (const UnitRange& range : mapper_.windows().home_ranges(spot)) {
    home_.for_each_part(range, [&](BlockId hole, UnitRange part) {
      const BlockId lent = home_.carve(hole, part, BlockState::lent);
      (last == 0 ? block.link_next : blocks_[last].link_next) = lent;
      last = lent;
    });
  }
  mapper_.note_block(spot);
  placement_.note_made(id);
  if (on_mapping_) [[unlikely]]
    note_lent(true, id);
  return {Status::ok, id, address_of(id)};
}

void DeviceHeap::note_lent(bool begins, BlockId id) const {
  const Block& block = blocks_[id];
  const std::uint64_t bytes = block.size * kUnitBytes;
  if (!begins) note_mapping(false, address_of(id), bytes);
  for (BlockId lent = block.link_next; lent != 0; lent = blocks_[lent].link_next) {
    note_mapping(!begins, home_address(blocks_[lent].begin), blocks_[lent].size * kUnitBytes);
  }
  if (begins) note_mapping(true, address_of(id), bytes);
}

void DeviceHeap::free_in_window(BlockId id, Owner owner, Epoch epoch) {
  if (on_mapping_) [[unlikely]]
    note_lent(false, id);
  const Block block = blocks_[id];
  for (BlockId lent = block.link_next; lent != 0;) {
    const BlockId next = blocks_[lent].link_next;
    home_.free(lent, owner_of_free(blocks_[lent].begin, owner), epoch);
    lent = next;
  }
  blocks_.recycle(id);
  mapper_.note_free(block.prev, block.begin, owner, epoch);
}

// --- the miss ladder ---------------------------------------------------------------------------

DeviceHeap::Placed DeviceHeap::place_after_miss(Unit size, Owner owner, const Demand& demand) {
  const Request request(*this);
  ++misses_;
  loading_.note(demand.volume_bytes / kUnitBytes, live_units(),
                std::uint64_t{home_.present_pages()} * page_units_);
  const std::uint64_t lacking = pages_lacking(size);
  const bool too_large =
      vmm_ && home_mapper_.device_pages() + lacking > device_bytes_ / page_bytes_;
  if (memory().unreleased() == 0 && (too_large || lacking > home_mapper_.limit_pages_left())) {
    return failure(DriverStatus::out_of_memory);
  }
  if (!streams_.watches_captures()) mapper_.unmap_retired();
  if (memory().host_bytes() != 0) give_back_idle_spill(demand);
  const auto anywhere = [&] { return search_again(size, owner, demand); };
  Placed placed = search(owner, anywhere);
  if (placed.status != Status::ok && memory().unreleased() != 0) {
    // Memory the driver would not take back may go now.
    memory().retry_releases();
    room_.forget();
    room_.begin_request();
    placed = search(owner, anywhere);
  }
  if (placed.status == Status::ok) return placed;
  if (!could_fit(size)) return Placed::failed(DriverStatus::out_of_memory);
  return search_everywhere(size, owner, demand);
}

DeviceHeap::Placed DeviceHeap::search_everywhere(Unit size, Owner owner, const Demand& demand) {
  const auto anywhere = [&] { return search_again(size, owner, demand); };
  // What was refused once may be granted now.
  refused_.take_back();
  streams_.begin_request();
  Placed placed = search(owner, anywhere);
  if (placed.status == Status::ok) return placed;
  if (streams_.several()) {
    if (streams_.any_capturing()) return placed;
    // Neighbouring holes of several owners are one hole to whoever waits for all of them.
    settle_all();
    placed = search(owner, anywhere);
    if (placed.status == Status::ok) return placed;
    // What a stream refused to wait for is done then.
    if (const DriverStatus status = finish_streams(); status != DriverStatus::ok) {
      return failure(status);
    }
    ++retries_;
    room_.ask();  // the driver may have refused a moment ago
    placed = search(owner, anywhere);
  }
  if (placed.status != Status::ok && mapper_.lacks_addresses() && !streams_.any_capturing()) {
    if (const DriverStatus status = finish_streams(); status != DriverStatus::ok) {
      return failure(status);
    }
    ++retries_;
    (void)mapper_.unmap_idle();
    placed = search(owner, anywhere);
  }
  if (placed.status != Status::ok && !vmm_) placed = place_after_trim(size, owner, demand);
  return placed;
}

DeviceHeap::Placed DeviceHeap::place_after_trim(Unit size, Owner owner, const Demand& demand) {
  std::uint64_t free_bytes = 0;
  for (const PageRange& segment : home_mapper_.segments()) {
    PageId free = 0;
    while (free < segment.count && home_.is_free(segment.first + free, owner)) ++free;
    if (free == segment.count) free_bytes += segment.count * page_bytes_;
  }
  const std::uint64_t wanted_bytes = align_up(size * kUnitBytes, page_bytes_);
  std::uint64_t left_bytes = home_mapper_.limit_pages_left() * page_bytes_;
  left_bytes = std::min(left_bytes, memory().free_on_device().value_or(0));
  const std::uint64_t missing_bytes = wanted_bytes - std::min(wanted_bytes, left_bytes);
  if (missing_bytes > free_bytes) return failure();
  const auto retry = [&](std::uint64_t keep_bytes) {
    ++retries_;
    const DriverStatus trimmed = trim(keep_bytes);
    const Placed placed = search(owner, [&] { return search_again(size, owner, demand); });
    return placed.status == Status::ok || trimmed == DriverStatus::ok ? placed : failure(trimmed);
  };
  const Placed placed = retry(reserved_bytes() - missing_bytes);
  return placed.status == Status::ok ? placed : retry(0);
}

DeviceHeap::Placed DeviceHeap::search_again(Unit size, Owner owner, const Demand& demand) {
  if (streams_.several()) return search_among_streams(size, owner, demand);
  Terms terms{Reach(owner)};
  terms.for_everyone = true;
  return place_on(size, terms, demand);
}

bool DeviceHeap::take_from_pools(Unit size, Reach reach) {
  if (reclaim_given_up()) return true;
  if (!pools_.lenders().any()) return false;
  const std::uint64_t missing = mapper_.plan(size, reach).missing;
  return missing != 0 && pools_.borrow(missing, room_);
}

// --- whether it fits -----------------------------------------------------------------------------

std::uint64_t DeviceHeap::pages_lacking(Unit size) const {
  const std::uint64_t free = home_.free_units();
  return size <= free ? 0 : div_up(size - free, std::uint64_t{page_units_});
}

bool DeviceHeap::could_fit(Unit size) { return room_.could_serve(pages_lacking(size)); }

void DeviceHeap::begin_request() {
  room_.begin_request();
  refusal_ = DriverStatus::out_of_memory;
  streams_.begin_request();
}

void DeviceHeap::end_request() { refused_.take_back(); }

DeviceHeap::Placed DeviceHeap::failure(DriverStatus status) {
  // That a stream cannot be waited for now is the memory's matter, not the request's.
  if (status != DriverStatus::out_of_memory && status != DriverStatus::not_ready) {
    refusal_ = status;
  }
  return failure();
}

std::uint64_t DeviceHeap::copies_allowance() const {
  return placement_.units_for_copies(live_units(), options_.copies_slack / 100) * kUnitBytes;
}

// --- what there is ------------------------------------------------------------------------------

std::vector<MemoryPiece> DeviceHeap::pieces_of(BlockId id, std::uint64_t& offset_bytes) const {
  const Block& block = blocks_[id];
  std::vector<UnitRange> ranges = {{block.begin, block.size}};
  if (block.state == BlockState::window) {
    ranges = mapper_.windows().home_ranges({block.prev, block.begin, block.size});
  }
  const Frames& frames = home_.frames();
  const Unit first_frame = frames.begin(ranges.front().begin >> page_shift_) << page_shift_;
  offset_bytes = std::uint64_t{ranges.front().begin - first_frame} * kUnitBytes;
  std::vector<MemoryPiece> pieces;
  for (const UnitRange& range : ranges) {
    const PageId first = frames.begin(range.begin >> page_shift_);
    const PageId last = frames.end((range.begin + range.size - 1) >> page_shift_);
    const auto more = home_mapper_.pieces_of({first, last - first});
    pieces.insert(pieces.end(), more.begin(), more.end());
  }
  return pieces;
}

std::uint64_t DeviceHeap::largest_request(Owner owner) const {
  std::uint64_t largest = blocks_[home_.largest_hole(owner)].size;
  if (use_windows()) {
    largest = std::max(largest, std::uint64_t{home_.free_pages(owner)} * page_units_);
  }
  return largest;
}

void DeviceHeap::validate() const {
  home_.validate();
  placement_.validate();
  const auto check = [](bool holds, const char* rule) {
    if (!holds) throw std::logic_error(std::string("device heap: ") + rule);
  };
  std::uint64_t mapped = 0;
  windows().for_each([&](WindowId, const Window& window) {
    for (const PageId page : window.pages) {
      if (page == kNoPage) continue;
      ++mapped;
      check(page < home_.max_pages() && home_.is_present(page), "a window over an absent page");
    }
  });
  check(mapped == windows().mapped_pages(), "mapped pages do not add up");
  windows().validate();
  PageId of_device = vmm_ ? 0 : home_.present_pages();
  for (PageId page = 0; vmm_ && page < home_.max_pages(); ++page) {
    const bool has_memory = home_mapper_.handles()[page] != 0;
    check(home_.is_present(page) == (has_memory || pools_.asleep().is_asleep_at(page)),
          "a page without a handle");
    if (has_memory && !home_mapper_.is_on_host(page)) ++of_device;
  }
  check(of_device == home_mapper_.device_pages(), "the device's pages do not add up");
}

}  // namespace gapless
