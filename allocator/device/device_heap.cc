#include "allocator/device/device_heap.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

// Addresses a window gets for each page it begins with, so that it can be extended.
constexpr std::uint64_t kRoomFactor = 4;

std::uint64_t usable_page_bytes(const DeviceProperties& properties, const Options& options) {
  // Without VMM memory comes from cuMemAlloc, which hands out multiples of 2 MiB.
  const bool vmm = properties.has_vmm && options.vmm;
  return align_up(options.page_size, vmm ? properties.granularity_bytes : 2 * MiB);
}

// Room for every page of the device and some more, since pages that were given back leave gaps and
// memory that is not contiguous keeps a page of distance.
PageId home_pages(const DeviceProperties& properties, std::uint64_t page_bytes) {
  const std::uint64_t pages = properties.total_bytes / page_bytes;
  const std::uint64_t most = UINT32_MAX / (page_bytes / kUnitBytes) - 1;
  return static_cast<PageId>(std::min(pages + pages / 8 + 16, most));
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
      home_(blocks_, page_units_, home_pages(properties, page_bytes_)),
      windows_(home_, options.edge_sharing),
      planner_(home_, windows_, blocks_, options.edge_sharing),
      streams_(driver, device),
      physical_(driver, device, page_bytes_),
      home_space_(driver, device, page_bytes_, std::uint64_t{home_.max_pages()} * page_bytes_),
      window_space_(driver, device, page_bytes_,
                    std::uint64_t{8} * home_.max_pages() * page_bytes_),
      page_address_(home_.max_pages(), 0),
      page_handle_(home_.max_pages(), 0) {
  physical_.set_limit_bytes(options.limit);
}

// --- blocks ------------------------------------------------------------------------------------

DeviceHeap::Placed DeviceHeap::in_window(const WindowSpot& spot, Owner owner) {
  const BlockId id = blocks_.make();
  Block& block = blocks_[id];
  block.state = BlockState::window;
  block.begin = spot.begin;
  block.size = spot.size;
  block.prev = spot.window;
  block.owner = owner;
  BlockId last = 0;
  for (const UnitRange& range : windows_.home_ranges(spot)) {
    // Neighbouring pages may belong to two holes, one the owner's and one anyone's.
    const Unit end = range.begin + range.size;
    for (Unit at = range.begin; at < end;) {
      const BlockId hole = home_.hole_at(at);
      const Unit part = std::min(end, blocks_[hole].end()) - at;
      const BlockId lent = home_.carve(hole, {at, part}, BlockState::lent);
      (last == 0 ? block.link_next : blocks_[last].link_next) = lent;
      last = lent;
      at += part;
    }
  }
  ++windows_.at(spot.window).live_blocks;
  windows_.touch(spot.window);
  return {Status::ok, id, address_of(id)};
}

void DeviceHeap::free_in_window(BlockId id, Owner owner, Epoch epoch) {
  const Block& block = blocks_[id];
  --windows_.at(block.prev).live_blocks;
  for (BlockId lent = block.link_next; lent != 0;) {
    const BlockId next = blocks_[lent].link_next;
    home_.free(lent, owner, epoch);
    lent = next;
  }
  blocks_.recycle(id);
}

// --- the miss ladder ---------------------------------------------------------------------------

DeviceHeap::Placed DeviceHeap::place_after_miss(Unit size, Owner owner, std::uint64_t peak_bytes) {
  ++misses_;
  unmap_retired();
  if (streams_.streams() > 1) {
    collect_completed();
    if (const Fit fit = home_.fit(size, owner); fit.hole != 0) return in_hole(fit, size);
  }
  Placed placed = try_ladder(size, owner, peak_bytes);
  if (placed.status == Status::out_of_memory && streams_.streams() > 1) {
    // What other streams freed is not lost: wait for it, and search again.
    if (streams_.finish() == DriverStatus::ok) {
      ++counters_.retries;
      for (std::size_t i = 1; i <= streams_.streams(); ++i) {
        settle(static_cast<Owner>(i), streams_.completed(static_cast<Owner>(i)));
      }
      if (const Fit fit = home_.fit(size, owner); fit.hole != 0) return in_hole(fit, size);
      placed = try_ladder(size, owner, peak_bytes);
    }
  }
  if (placed.status == Status::out_of_memory && !vmm_ && home_.free_pages(owner) != 0) {
    // Free segments that cannot be joined may make room for one that is large enough.
    ++counters_.retries;
    if (trim(0) == Status::ok) placed = try_ladder(size, owner, peak_bytes);
  }
  return placed;
}

DeviceHeap::Placed DeviceHeap::try_ladder(Unit size, Owner owner, std::uint64_t peak_bytes) {
  const bool windows = vmm_ && options_.windows;
  if (windows) {
    if (const auto spot = windows_.find(size, owner)) {
      ++counters_.window_hits;
      return in_window(*spot, owner);
    }
  }
  const auto growth = home_.growth_for(size, owner, !vmm_);
  DriverStatus status = DriverStatus::out_of_memory;
  const auto grow_and_place = [&]() -> Placed {
    status = grow(*growth, owner);
    if (status != DriverStatus::ok) return {Status::out_of_memory, 0, 0};
    return in_hole(home_.fit(size, owner), size);
  };
  const auto room_for = [&](std::uint64_t pages) {
    return home_.present_pages() + pages <= ceiling_pages_ && physical_.within_limit(pages);
  };
  bool grow_failed = false;
  if (growth && room_for(growth->count) &&
      reserved_bytes() + growth->count * page_bytes_ <= growth_allowance(peak_bytes)) {
    if (const Placed placed = grow_and_place(); placed.status == Status::ok) return placed;
    grow_failed = true;
  }
  if (windows) {
    WindowPlan plan = planner_.plan(size, owner);
    const bool grow_instead = growth && growth->count <= plan.missing;
    if (grow_instead && !grow_failed) {
      if (const Placed placed = grow_and_place(); placed.status == Status::ok) return placed;
    } else if (!grow_instead) {
      WindowSpot spot;
      status = make_window(std::move(plan), size, owner, spot);
      if (status == DriverStatus::ok) return in_window(spot, owner);
    }
  } else if (growth && !grow_failed) {
    if (const Placed placed = grow_and_place(); placed.status == Status::ok) return placed;
  }
  last_driver_status_ = status;
  return {status == DriverStatus::out_of_memory ? Status::out_of_memory : Status::driver_error, 0,
          0};
}

std::uint64_t DeviceHeap::growth_allowance(std::uint64_t peak_bytes) const {
  const auto peak = static_cast<double>(peak_bytes);
  const double slack = peak * options_.slack / 100;
  // A program that repeats stops making windows; one that goes on making them after every page
  // has been in a window or two does not repeat, and earns growth.
  double peace = 0;
  if (options_.peace_pages != 0) {
    const double settled = 1.0 * home_.present_pages();
    const double beyond = static_cast<double>(counters_.window_pages_made) - settled;
    const double earned = std::max(0.0, beyond) / static_cast<double>(options_.peace_pages) *
                          static_cast<double>(page_bytes_);
    peace = std::min(earned, peak * std::max(0.0, options_.peace - options_.slack) / 100);
  }
  return peak_bytes + static_cast<std::uint64_t>(slack + peace);
}

// --- growth ------------------------------------------------------------------------------------

DriverStatus DeviceHeap::grow(PageRange pages, Owner owner) {
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
  DriverStatus status = physical_.create(handles);
  if (status != DriverStatus::ok) {
    if (status == DriverStatus::out_of_memory && physical_.within_limit(pages.count)) {
      ceiling_pages_ = home_.present_pages() + pages.count - 1;
    }
    return status;
  }
  status = home_space_.map(address, handles);
  if (status != DriverStatus::ok) {
    physical_.release(handles);
    return status;
  }
  std::copy(handles.begin(), handles.end(), page_handle_.begin() + pages.first);
  if (home_.present_pages() + pages.count > ceiling_pages_) ceiling_pages_ = UINT64_MAX;
  home_.add_pages(pages, owner, streams_.open_epoch(owner));
  ++counters_.home_growths;
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
  home_.add_pages(pages, owner, streams_.open_epoch(owner));
  ++counters_.home_growths;
  return DriverStatus::ok;
}

void DeviceHeap::ungrow(PageRange pages) {
  const DeviceAddress address = page_address_[pages.first];
  if (home_space_.unmap(address, pages.count * page_bytes_) != DriverStatus::ok) return;
  home_.remove_pages(pages);
  physical_.release(std::span(page_handle_).subspan(pages.first, pages.count));
  std::fill_n(page_handle_.begin() + pages.first, pages.count, MemHandle{0});
}

std::uint64_t DeviceHeap::reserved_bytes() const {
  return vmm_ ? physical_.reserved_bytes() : home_.present_pages() * page_bytes_;
}

std::uint64_t DeviceHeap::pages_created() const {
  return vmm_ ? physical_.created() : counters_.home_growths;
}

std::uint64_t DeviceHeap::pages_released() const {
  return vmm_ ? physical_.released() : counters_.home_growths - plain_segments_.size();
}

// --- windows -----------------------------------------------------------------------------------

DriverStatus DeviceHeap::make_window(WindowPlan plan, Unit size, Owner owner, WindowSpot& spot) {
  std::vector<PageRange> added;
  DriverStatus status = DriverStatus::ok;
  auto place = std::find(plan.pages.begin(), plan.pages.end(), kNoPage);
  for (PageId left = plan.missing; left != 0 && status == DriverStatus::ok;) {
    const auto run = home_.absent_run(left);
    if (!run) {
      status = DriverStatus::out_of_memory;
      break;
    }
    status = grow(*run, owner);
    if (status != DriverStatus::ok) break;
    added.push_back(*run);
    for (PageId i = 0; i < run->count; ++i) *place++ = run->first + i;
    left -= run->count;
  }
  const bool extends = plan.tail.pages != 0;
  const std::uint64_t bytes = plan.pages.size() * page_bytes_;
  const auto room = static_cast<std::uint32_t>(plan.pages.size() * kRoomFactor);
  DeviceAddress address = 0;
  if (extends) {
    const Window& window = windows_.at(plan.tail.window);
    address = window.address + window.pages.size() * page_bytes_;
    if (window_space_.has_leftover(address, bytes) && !window_space_.clear_leftovers()) {
      status = DriverStatus::unknown;
    }
  } else if (status == DriverStatus::ok) {
    status = window_space_.take(room * page_bytes_, address);
  }
  if (status == DriverStatus::ok) {
    std::vector<MemHandle> handles;
    handles.reserve(plan.pages.size());
    for (const PageId page : plan.pages) handles.push_back(page_handle_[page]);
    status = window_space_.map(address, handles);
    if (status != DriverStatus::ok && !extends && !window_space_.has_leftover(address, bytes)) {
      window_space_.put_back(address, room * page_bytes_);
    }
  }
  if (status != DriverStatus::ok) {
    for (const PageRange& run : added) ungrow(run);
    return status;
  }
  counters_.window_pages_made += plan.pages.size();
  if (extends) {
    ++counters_.windows_extended;
    const auto places = static_cast<Unit>(windows_.at(plan.tail.window).pages.size());
    spot = {plan.tail.window, (places - plan.tail.pages) * page_units_ + plan.begin, size};
    windows_.extend(plan.tail.window, plan.pages);
    windows_.touch(plan.tail.window);
    evict_windows(plan.tail.window);
  } else {
    ++counters_.windows_made;
    const WindowId window = windows_.add(address, room, std::move(plan.pages));
    spot = {window, plan.begin, size};
    evict_windows(window);
  }
  return DriverStatus::ok;
}

void DeviceHeap::evict_windows(WindowId keep) {
  const std::uint64_t bound = options_.window_factor * home_.present_pages();
  std::uint64_t mapped = windows_.mapped_pages();
  for (const Retiring& retiring : retiring_) mapped -= windows_.at(retiring.window).pages.size();
  if (mapped <= bound) return;
  // One event per stream covers all windows that go now, so let some more go with them.
  const std::uint64_t target = bound - bound / 8;
  std::vector<WindowId> leaving;
  while (mapped > target) {
    const auto oldest = windows_.least_recently_used();
    if (!oldest || *oldest == keep) break;
    windows_.at(*oldest).retired = true;
    mapped -= windows_.at(*oldest).pages.size();
    leaving.push_back(*oldest);
  }
  if (leaving.empty()) return;
  std::vector<Epoch> after(streams_.streams(), 0);
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto owner = static_cast<Owner>(i + 1);
    const Epoch epoch = streams_.open_epoch(owner);
    if (streams_.close_epoch(owner, true) != DriverStatus::ok) {
      for (const WindowId id : leaving) windows_.at(id).retired = false;  // another time
      return;
    }
    after[i] = epoch;
  }
  for (const WindowId id : leaving) retiring_.push_back({id, after});
}

void DeviceHeap::unmap_retired() {
  if (retiring_.empty()) return;
  streams_.poll([&](Owner owner, Epoch completed) { settle(owner, completed); });
  while (!retiring_.empty()) {
    const Retiring& next = retiring_.front();
    for (std::size_t i = 0; i < next.after.size(); ++i) {
      if (streams_.completed(static_cast<Owner>(i + 1)) < next.after[i]) return;
    }
    if (!unmap_window(next.window)) return;
    ++counters_.windows_evicted;
    retiring_.pop_front();
  }
}

bool DeviceHeap::unmap_window(WindowId id) {
  Window& window = windows_.at(id);
  // Runs of places that still hold their page; each is unmapped in one call.
  const auto count = static_cast<std::uint32_t>(window.pages.size());
  for (std::uint32_t begin = 0; begin < count;) {
    if (window.pages[begin] == kNoPage) {
      ++begin;
      continue;
    }
    std::uint32_t end = begin;
    while (end < count && window.pages[end] != kNoPage) ++end;
    if (window_space_.unmap(window.address + begin * page_bytes_, (end - begin) * page_bytes_) !=
        DriverStatus::ok) {
      return false;
    }
    for (std::uint32_t place = begin; place < end; ++place) windows_.drop_page(id, place);
    begin = end;
  }
  window_space_.put_back(window.address, window.room * page_bytes_);
  windows_.remove(id);
  return true;
}

void DeviceHeap::collect_completed() {
  for (std::size_t i = 1; i <= streams_.streams(); ++i) {
    // A stream the program has destroyed refuses; its frees wait for the next finish().
    (void)streams_.close_epoch(static_cast<Owner>(i));
  }
  (void)streams_.poll([&](Owner owner, Epoch completed) { settle(owner, completed); });
}

// --- giving back -------------------------------------------------------------------------------

bool DeviceHeap::drop_from_windows(PageRange pages) {
  std::vector<std::pair<WindowId, std::uint32_t>> places;
  windows_.for_each([&](WindowId id, const Window& window) {
    for (std::uint32_t place = 0; place < window.pages.size(); ++place) {
      const PageId page = window.pages[place];
      if (page >= pages.first && page < pages.first + pages.count) places.emplace_back(id, place);
    }
  });
  for (const auto& [id, place] : places) {
    const DeviceAddress address = windows_.at(id).address + place * page_bytes_;
    if (window_space_.unmap(address, page_bytes_) != DriverStatus::ok) return false;
    windows_.drop_page(id, place);
  }
  return true;
}

Status DeviceHeap::trim(std::uint64_t keep_bytes) {
  if (reserved_bytes() <= keep_bytes || home_.present_pages() == 0) return Status::ok;
  if (streams_.streams() != 0) {
    last_driver_status_ = streams_.finish();
    if (last_driver_status_ != DriverStatus::ok) return Status::driver_error;
    for (std::size_t i = 1; i <= streams_.streams(); ++i) {
      settle(static_cast<Owner>(i), streams_.completed(static_cast<Owner>(i)));
    }
  }
  unmap_retired();
  physical_.retry_releases();
  ceiling_pages_ = UINT64_MAX;
  bool refused = false;
  std::vector<WindowId> idle;
  windows_.for_each([&](WindowId id, const Window& window) {
    if (window.live_blocks == 0 && !window.retired) idle.push_back(id);
  });
  for (const WindowId id : idle) refused |= !unmap_window(id);
  if (!vmm_) {
    std::vector<PageRange> kept;
    for (const PageRange& segment : plain_segments_) {
      bool free = reserved_bytes() > keep_bytes;
      for (PageId i = 0; i < segment.count && free; ++i) {
        free = home_.is_free(segment.first + i, kAnyone);
      }
      if (free && driver_.mem_free(device_, page_address_[segment.first]) == DriverStatus::ok) {
        home_.remove_pages(segment);
      } else {
        refused |= free;
        kept.push_back(segment);
      }
    }
    plain_segments_ = std::move(kept);
    return refused ? Status::driver_error : Status::ok;
  }
  // The highest pages first: what stays is one piece at the home's begin.
  std::vector<PageRange> runs = home_.free_runs(kAnyone);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const std::uint64_t over = reserved_bytes() > keep_bytes ? reserved_bytes() - keep_bytes : 0;
    const auto count =
        static_cast<PageId>(std::min<std::uint64_t>(run->count, div_up(over, page_bytes_)));
    if (count == 0) break;
    const PageRange leaving{run->first + run->count - count, count};
    if (!drop_from_windows(leaving)) {
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
  const DriverStatus windows_status = window_space_.release_all();
  const DriverStatus home_status = home_space_.release_all();
  std::fill(page_address_.begin(), page_address_.end(), DeviceAddress{0});
  last_driver_status_ = windows_status != DriverStatus::ok ? windows_status : home_status;
  return last_driver_status_ == DriverStatus::ok ? Status::ok : Status::driver_error;
}

std::uint64_t DeviceHeap::largest_request(Owner owner) const {
  std::uint64_t largest = home_.largest_hole(owner);
  if (vmm_ && options_.windows) {
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
  windows_.for_each([&](WindowId, const Window& window) {
    for (const PageId page : window.pages) {
      if (page == kNoPage) continue;
      ++mapped;
      check(page < home_.max_pages() && home_.is_present(page), "a window over an absent page");
    }
  });
  check(mapped == windows_.mapped_pages(), "mapped pages do not add up");
  if (!vmm_) return;
  for (PageId page = 0; page < home_.max_pages(); ++page) {
    check(home_.is_present(page) == (page_handle_[page] != 0), "a page without a handle");
  }
}

}  // namespace gapless
