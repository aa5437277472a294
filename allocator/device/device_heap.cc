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

// Room for every page of the device and some more, since pages that were given back leave gaps and
// memory that is not contiguous keeps a page of distance.
PageId home_pages(const DeviceProperties& properties, std::uint64_t spill_bytes,
                  std::uint64_t page_bytes) {
  const std::uint64_t pages = (properties.total_bytes + spill_bytes) / page_bytes;
  const std::uint64_t most = UINT32_MAX / (page_bytes / kUnitBytes) - 1;
  return static_cast<PageId>(std::min(pages + pages / 8 + 16, most));
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
    : driver_(driver),
      device_(device),
      options_(options),
      vmm_(properties.has_vmm && options.vmm),
      page_bytes_(usable_page_bytes(properties, options)),
      page_units_(static_cast<Unit>(page_bytes_ / kUnitBytes)),
      page_shift_(static_cast<unsigned>(std::countr_zero(page_units_))),
      home_(blocks_, page_units_,
            home_pages(properties, spill_of(properties, options), page_bytes_)),
      streams_(driver, device),
      physical_(driver, device, page_bytes_, share_of(properties, options)),
      home_space_(driver, device, page_bytes_, std::uint64_t{home_.max_pages()} * page_bytes_),
      mapper_(driver, device, page_bytes_, home_, blocks_, streams_, options),
      page_address_(home_.max_pages(), 0),
      page_handle_(home_.max_pages(), 0),
      spill_bytes_(spill_of(properties, options)) {
  physical_.set_limit_bytes(options.limit);
  keep_headroom(true);
}

// --- blocks ------------------------------------------------------------------------------------

DeviceHeap::Placed DeviceHeap::in_window(const WindowSpot& spot, Owner owner) {
  if (streams_.several()) {
    last_driver_status_ = come_after(owner, mapper_.windows().home_ranges(spot));
    if (last_driver_status_ != DriverStatus::ok) return failure();
  }
  const BlockId id = blocks_.make();
  Block& block = blocks_[id];
  block.state = BlockState::window;
  block.begin = spot.begin;
  block.size = spot.size;
  block.prev = spot.window;
  block.owner = owner;
  BlockId last = 0;
  for (const UnitRange& range : mapper_.windows().home_ranges(spot)) {
    home_.for_each_part(range, [&](BlockId hole, UnitRange part) {
      const BlockId lent = home_.carve(hole, part, BlockState::lent);
      (last == 0 ? block.link_next : blocks_[last].link_next) = lent;
      last = lent;
    });
  }
  mapper_.note_block(spot);
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
  ++misses_;
  if (!streams_.watches_captures()) mapper_.unmap_retired();
  if (physical_.host_bytes() != 0) give_back_idle_spill(demand);
  Placed placed = try_ladder(size, owner, demand);
  if (placed.status == Status::out_of_memory && physical_.unreleased() != 0) {
    // Memory the driver would not take back may go now.
    physical_.retry_releases();
    ceiling_pages_ = UINT64_MAX;
    placed = try_ladder(size, owner, demand);
  }
  if (placed.status != Status::ok && streams_.several()) {
    // Neighbouring holes of several owners are one hole to whoever waits for all of them.
    settle_all();
    placed = search_again(size, owner, demand);
  }
  if (placed.status != Status::ok && streams_.several() && !streams_.any_capturing() &&
      finish_streams() == DriverStatus::ok) {
    // What a stream refused to wait for is done now.
    ++retries_;
    placed = search_again(size, owner, demand);
  }
  if (placed.status == Status::out_of_memory && !vmm_ && home_.free_pages(owner) != 0) {
    // Free segments that cannot be joined may make room for one that is large enough.
    ++retries_;
    if (trim(0) == Status::ok) placed = try_ladder(size, owner, demand);
  }
  return placed;
}

DeviceHeap::Placed DeviceHeap::search_again(Unit size, Owner owner, const Demand& demand) {
  const Fit fit = home_.fit(size, owner);
  if (fit.hole != 0) {
    const Placed placed = in_hole_of_any(fit, size, owner);
    if (placed.status == Status::ok) return placed;
  }
  return try_ladder(size, owner, demand);
}

DeviceHeap::Placed DeviceHeap::try_ladder(Unit size, Owner owner, const Demand& demand) {
  if (use_windows()) {
    if (const auto spot = mapper_.find(size, owner)) return in_window(*spot, owner);
  }
  const auto growth = home_.growth_for(size, owner, !vmm_);
  last_driver_status_ = DriverStatus::out_of_memory;
  if (!given_up_.empty() && reclaim_given_up()) return search_again(size, owner, demand);
  if (streams_.several()) {
    if (const auto placed = place_in_others(size, owner, demand, growth)) return *placed;
  }
  bool refused = false;
  if (growth && room_for(growth->count) &&
      reserved_bytes() + growth->count * page_bytes_ <= growth_allowance(demand.peak_bytes)) {
    const Placed placed = grow_and_place(*growth, size, owner);
    if (placed.status == Status::ok) return placed;
    refused = true;
  }
  if (use_windows()) {
    return map_window_or_grow(size, owner, demand, refused ? std::nullopt : growth);
  }
  if (growth && !refused) return grow_and_place(*growth, size, owner);
  return failure();
}

DeviceHeap::Placed DeviceHeap::map_window_or_grow(Unit size, Reach reach, const Demand& demand,
                                                  const std::optional<PageRange>& growth) {
  const Owner owner = reach.owner;
  WindowPlan plan = mapper_.plan(size, reach);
  if (growth && growth->count <= plan.missing) return grow_and_place(*growth, size, reach);
  const std::uint64_t allowed = growth_allowance(demand.peak_bytes);
  PageId comfort = 0;
  while (reserved_bytes() + (comfort + 1) * page_bytes_ <= allowed && room_for(comfort + 1))
    ++comfort;
  WindowSpot spot;
  if (const auto repair = mapper_.plan_repair(size, reach, plan, comfort, demand.volume_bytes)) {
    last_driver_status_ = map_window(*repair, size, owner, spot);
    if (last_driver_status_ == DriverStatus::ok) return in_window(spot, owner);
    plan = mapper_.plan(size, reach);  // places of the window may be gone
  }
  last_driver_status_ = map_window(std::move(plan), size, owner, spot);
  return last_driver_status_ == DriverStatus::ok ? in_window(spot, owner) : failure();
}

DeviceHeap::Placed DeviceHeap::grow_and_place(PageRange pages, Unit size, Reach reach) {
  // New memory joins the hole before it, whose ever that is.
  last_driver_status_ = grow(pages, home_.owner_below(pages.first, reach));
  if (last_driver_status_ != DriverStatus::ok) return failure();
  return in_hole_of_any(home_.fit(size, reach.owner, reach.anyone), size, reach.owner);
}

bool DeviceHeap::room_for(std::uint64_t pages) const {
  return device_pages() + pages <= ceiling_pages_ && physical_.within_limit(pages);
}

DeviceHeap::Placed DeviceHeap::failure() const {
  const bool full = last_driver_status_ == DriverStatus::out_of_memory;
  return {full ? Status::out_of_memory : Status::driver_error, 0, 0};
}

std::uint64_t DeviceHeap::growth_allowance(std::uint64_t peak_bytes) const {
  return peak_bytes +
         static_cast<std::uint64_t>(static_cast<double>(peak_bytes) * options_.slack / 100);
}

// --- growth ------------------------------------------------------------------------------------

DriverStatus DeviceHeap::grow(PageRange pages, Owner owner, bool on_host) {
  if (!vmm_) return grow_plain(pages, owner);
  std::vector<MemHandle> handles(pages.count, 0);
  if (page_address_[0] == 0) {  // the first page of all: the home needs its addresses
    DeviceAddress base = 0;
    const DriverStatus status =
        home_space_.take(std::uint64_t{home_.max_pages()} * page_bytes_, base);
    if (status != DriverStatus::ok) return status;
    for (PageId page = 0; page < home_.max_pages(); ++page) {
      page_address_[page] = base + std::uint64_t{page} * page_bytes_;
    }
  }
  const DeviceAddress address = page_address_[pages.first];
  if (home_space_.has_leftover(address, pages.count * page_bytes_) &&
      !home_space_.clear_leftovers()) {
    return DriverStatus::unknown;
  }
  DriverStatus status = on_host ? physical_.create_on_host(handles) : physical_.create(handles);
  if (status != DriverStatus::ok) {
    const bool full = status == DriverStatus::out_of_memory && !on_host;
    if (full && physical_.within_limit(pages.count)) {
      ceiling_pages_ = device_pages() + pages.count - 1;
    }
    return status;
  }
  status = home_space_.map(address, handles);
  if (status != DriverStatus::ok) {
    physical_.release(handles);
    return status;
  }
  std::copy(handles.begin(), handles.end(), page_handle_.begin() + pages.first);
  home_.add_pages(pages, owner, kNeverUsed);
  if (device_pages() > ceiling_pages_) ceiling_pages_ = UINT64_MAX;
  ++home_growths_;
  note_mapping(true, pages);
  return DriverStatus::ok;
}

DriverStatus DeviceHeap::grow_plain(PageRange pages, Owner owner) {
  if (!physical_.within_limit(home_.present_pages() + pages.count)) {
    return DriverStatus::out_of_memory;
  }
  DeviceAddress address = 0;
  const DriverStatus status = driver_.mem_alloc(device_, pages.count * page_bytes_, address);
  if (status != DriverStatus::ok) return status;
  for (PageId i = 0; i < pages.count; ++i) {
    page_address_[pages.first + i] = address + std::uint64_t{i} * page_bytes_;
  }
  plain_segments_.push_back(pages);
  home_.add_pages(pages, owner, kNeverUsed);
  ++home_growths_;
  note_mapping(true, pages);
  return DriverStatus::ok;
}

void DeviceHeap::ungrow(PageRange pages) {
  const DeviceAddress address = page_address_[pages.first];
  if (home_space_.unmap(address, pages.count * page_bytes_) != DriverStatus::ok) return;
  home_.remove_pages(pages);
  note_mapping(false, pages);
  physical_.release(std::span(page_handle_).subspan(pages.first, pages.count));
  std::fill_n(page_handle_.begin() + pages.first, pages.count, MemHandle{0});
}

std::uint64_t DeviceHeap::reserved_bytes() const {
  return vmm_ ? physical_.reserved_bytes() : home_.present_pages() * page_bytes_;
}

std::uint64_t DeviceHeap::pages_created() const {
  return vmm_ ? physical_.created() : home_growths_;
}

std::uint64_t DeviceHeap::pages_released() const {
  return vmm_ ? physical_.released() : home_growths_ - plain_segments_.size();
}

// --- windows -----------------------------------------------------------------------------------

DriverStatus DeviceHeap::create_missing(WindowPlan& plan, Owner owner,
                                        std::vector<PageRange>& added, bool on_host) {
  auto fill = plan.fills.begin();
  bool spills = false;
  for (PageId left = plan.missing; left != 0;) {
    // Before the host's, what the device still has, page by page.
    const auto run = home_.absent_run(on_host && !spills ? 1 : left);
    if (!run) return DriverStatus::out_of_memory;
    if (spills && !may_spill(run->count)) return DriverStatus::out_of_memory;
    const DriverStatus status =
        spills ? grow(*run, owner_in_pool(owner, kSpillPool), true) : grow(*run, owner);
    if (status == DriverStatus::out_of_memory && on_host && !spills) {
      spills = true;
      continue;
    }
    if (status != DriverStatus::ok) return status;
    added.push_back(*run);
    for (PageId i = 0; i < run->count; ++i) {
      while (fill->page != kNoPage) ++fill;
      fill->page = run->first + i;
    }
    left -= run->count;
  }
  return DriverStatus::ok;
}

DriverStatus DeviceHeap::map_window(WindowPlan plan, Unit size, Owner owner, WindowSpot& spot,
                                    bool on_host) {
  std::vector<PageRange> added;
  DriverStatus status = create_missing(plan, owner, added, on_host);
  if (status == DriverStatus::ok) status = mapper_.map(plan, page_handle_, size, spot);
  if (status != DriverStatus::ok) {
    for (const PageRange& run : added) ungrow(run);
  }
  return status;
}

// --- giving back -------------------------------------------------------------------------------

DriverStatus DeviceHeap::finish_streams() {
  if (streams_.streams() == 0) return DriverStatus::ok;
  const DriverStatus status = streams_.finish();
  if (status != DriverStatus::ok) return status;
  settle_all();
  return status;
}

void DeviceHeap::settle_all() { open_pool(0); }

Status DeviceHeap::trim(std::uint64_t keep_bytes) {
  const bool enough = reserved_bytes() <= keep_bytes && spilled_bytes() == 0;
  if (enough || home_.present_pages() == 0) return Status::ok;
  if (streams_.any_capturing()) return Status::driver_error;
  reclaim_given_up();
  last_driver_status_ = finish_streams();
  if (last_driver_status_ != DriverStatus::ok) return Status::driver_error;
  mapper_.unmap_retired();
  physical_.retry_releases();
  ceiling_pages_ = UINT64_MAX;
  bool refused = !mapper_.unmap_idle();
  if (!vmm_) {
    std::vector<PageRange> kept;
    for (const PageRange& segment : plain_segments_) {
      bool free = reserved_bytes() > keep_bytes;
      for (PageId i = 0; i < segment.count && free; ++i) {
        free = home_.is_free(segment.first + i, kAnyone);
      }
      if (free && driver_.mem_free(device_, page_address_[segment.first]) == DriverStatus::ok) {
        home_.remove_pages(segment);
        note_mapping(false, segment);
      } else {
        refused |= free;
        kept.push_back(segment);
      }
    }
    plain_segments_ = std::move(kept);
    return refused ? Status::driver_error : Status::ok;
  }
  refused |= !give_back_spilled();
  // The highest pages first: what stays is one piece at the home's begin.
  std::vector<PageRange> runs = home_.free_runs(kAnyone);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const std::uint64_t over = reserved_bytes() > keep_bytes ? reserved_bytes() - keep_bytes : 0;
    const auto count =
        static_cast<PageId>(std::min<std::uint64_t>(run->count, div_up(over, page_bytes_)));
    if (count == 0) break;
    const PageRange leaving{run->first + run->count - count, count};
    if (!mapper_.drop_pages(leaving)) {
      refused = true;
      continue;
    }
    const PageId before = home_.present_pages();
    ungrow(leaving);
    refused |= home_.present_pages() == before;
  }
  return refused ? Status::driver_error : Status::ok;
}

Status DeviceHeap::release_all() {
  physical_.retry_releases();
  const Status trimmed = trim(0);
  if (trimmed != Status::ok) return trimmed;
  if (home_.present_pages() != 0) return Status::invalid_argument;
  const DriverStatus windows_status = mapper_.release_all();
  const DriverStatus home_status = home_space_.release_all();
  std::fill(page_address_.begin(), page_address_.end(), DeviceAddress{0});
  last_driver_status_ = windows_status != DriverStatus::ok ? windows_status : home_status;
  return last_driver_status_ == DriverStatus::ok ? Status::ok : Status::driver_error;
}

void DeviceHeap::handles_of(BlockId id, std::vector<MemHandle>& handles,
                            std::uint64_t& offset) const {
  const Block& block = blocks_[id];
  std::vector<UnitRange> ranges = {{block.begin, block.size}};
  if (block.state == BlockState::window) {
    ranges = mapper_.windows().home_ranges({block.prev, block.begin, block.size});
  }
  offset = std::uint64_t{ranges.front().begin & (page_units_ - 1)} * kUnitBytes;
  for (const UnitRange& range : ranges) {
    const PageId last = (range.begin + range.size - 1) >> page_shift_;
    for (PageId page = range.begin >> page_shift_; page <= last; ++page) {
      handles.push_back(page_handle_[page]);
    }
  }
}

std::uint64_t DeviceHeap::largest_request(Owner owner) const {
  std::uint64_t largest = home_.largest_hole(owner);
  if (use_windows()) {
    largest = std::max(largest, std::uint64_t{home_.free_pages(owner)} * page_units_);
  }
  return largest;
}

void DeviceHeap::validate() const {
  home_.validate();
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
  if (!vmm_) return;
  for (PageId page = 0; page < home_.max_pages(); ++page) {
    const bool asleep = std::any_of(asleep_.begin(), asleep_.end(), [page](const auto& pool) {
      const std::vector<PageId>& pages = pool.second.pages;
      return std::binary_search(pages.begin(), pages.end(), page);
    });
    check(home_.is_present(page) == (page_handle_[page] != 0 || asleep), "a page without a handle");
  }
}

}  // namespace gapless
