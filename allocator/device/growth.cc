// DeviceHeap: pages come from the device when nothing else serves a request, and go back to it.
//
//   grow(pages)    create the handles | map them into the home | holes      or nothing of it
//   ungrow(pages)  unmap | no holes any more | release the handles
//   trim(keep)     waits for the device, then ungrows wholly free pages, the highest first
#include <algorithm>

#include "allocator/base/bytes.h"
#include "allocator/device/device_heap.h"

namespace gapless {
namespace {

// While a program loads, pieces are so many times as large: what is never freed breaks up nothing.
constexpr std::uint64_t kLoadingFactor = 4;

}  // namespace

// --- growth ------------------------------------------------------------------------------------

FrameOrder DeviceHeap::frame_order(PageId more) const {
  if (!vmm_ || options_.handle_parts == 0) return 0;
  const std::uint64_t most_pages = (loading_.holds() ? kLoadingFactor : 1) *
                                   (std::uint64_t{home_.present_pages()} + more) /
                                   options_.handle_parts;
  FrameOrder order = 0;
  while (order < kLargestOrder && most_pages >> (order + 1) != 0) ++order;
  return order;
}

PageRange DeviceHeap::with_rest_of_frame(PageRange pages) {
  if (!loading_.holds()) return pages;
  const PageRange whole = home_.absent_to_frame_end(pages, frame_order(pages.count));
  const bool stays = reserved_bytes() + whole.count * page_bytes_ <= options_.soft_limit;
  return whole.count != pages.count && stays && may_have(whole.count) ? whole : pages;
}

DriverStatus DeviceHeap::grow(PageRange pages, Owner owner, FrameOrder order, bool on_host) {
  if (!vmm_) return grow_plain(pages, owner);
  home_.join_absent(pages, order);
  const DriverStatus status = create_and_map(pages, on_host);
  if (status != DriverStatus::ok) {
    home_.separate_absent(pages);
    return status;
  }
  home_.add_pages(pages, owner, kNeverUsed);
  if (device_pages() > ceiling_pages_) ceiling_pages_ = UINT64_MAX;
  if (streams_.several() && !on_host) ask_for_ceiling();
  ++home_growths_;
  note_mapping(true, pages);
  return status;
}

DriverStatus DeviceHeap::create_and_map(PageRange pages, bool on_host) {
  std::vector<MemoryPiece> pieces = pieces_of(pages);
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
  DriverStatus status = on_host ? physical_.create_on_host(pieces) : physical_.create(pieces);
  if (status != DriverStatus::ok) {
    const bool full = status == DriverStatus::out_of_memory && !on_host;
    if (full && physical_.within_limit(pages.count * page_bytes_)) {
      ceiling_pages_ = device_pages() + pages.count - 1;
      asked_ = told_ = true;
    }
    return status;
  }
  status = home_space_.map(address, pieces);
  if (status != DriverStatus::ok) {
    physical_.release(pieces);
    return status;
  }
  note_pieces(pages.first, pieces);
  return DriverStatus::ok;
}

DriverStatus DeviceHeap::grow_plain(PageRange pages, Owner owner) {
  if (pages.count > limit_pages_left()) return DriverStatus::out_of_memory;
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
  const std::vector<MemoryPiece> pieces = pieces_of(pages);
  home_.remove_pages(pages);
  note_mapping(false, pages);
  physical_.release(pieces);
  std::fill_n(page_handle_.begin() + pages.first, pages.count, MemHandle{0});
}

std::vector<MemoryPiece> DeviceHeap::pieces_of(PageRange pages) const {
  std::vector<MemoryPiece> pieces;
  for (PageId page = pages.first; page < pages.first + pages.count;
       page = home_.frames().end(page)) {
    pieces.push_back({home_.frames().pages(page) * page_bytes_, page_handle_[page]});
  }
  return pieces;
}

void DeviceHeap::note_pieces(PageId first, std::span<const MemoryPiece> pieces) {
  for (const MemoryPiece& piece : pieces) {
    for (const PageId end = home_.frames().end(first); first < end; ++first) {
      page_handle_[first] = piece.handle;
    }
  }
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

// --- giving back -------------------------------------------------------------------------------

DriverStatus DeviceHeap::finish_streams() {
  if (streams_.streams() == 0) return DriverStatus::ok;
  const DriverStatus status = streams_.finish();
  if (status != DriverStatus::ok) return status;
  take_back_aside();
  settle_all();
  return status;
}

void DeviceHeap::settle_all() { open_pool(0); }

Status DeviceHeap::trim(std::uint64_t keep_bytes) {
  const bool enough = reserved_bytes() <= keep_bytes && spilled_bytes() == 0;
  const bool nothing = home_.present_pages() == 0 && physical_.unreleased() == 0;
  if (enough || nothing) return Status::ok;
  if (streams_.any_capturing()) return Status::driver_error;
  reclaim_given_up();
  if (const DriverStatus status = finish_streams(); status != DriverStatus::ok) {
    last_driver_status_ = status;
    return Status::driver_error;
  }
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
      DriverStatus status = DriverStatus::ok;
      if (free) status = driver_.mem_free(device_, page_address_[segment.first]);
      if (free && status == DriverStatus::ok) {
        home_.remove_pages(segment);
        note_mapping(false, segment);
        continue;
      }
      if (status != DriverStatus::ok) last_driver_status_ = status;
      refused |= free;
      kept.push_back(segment);
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
    const PageId end = run->first + run->count;
    const PageId first = home_.frames().begin(end - count);
    const PageRange leaving{first, end - first};
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
  const DriverStatus status = windows_status != DriverStatus::ok ? windows_status : home_status;
  return status == DriverStatus::ok ? Status::ok : Status::driver_error;
}

}  // namespace gapless
