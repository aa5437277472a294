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
  return whole.count != pages.count && stays && room_.is_there_for(whole.count) ? whole : pages;
}

DriverStatus DeviceHeap::grow(PageRange pages, Owner owner, FrameOrder order, bool on_host) {
  const Growth growth = home_mapper_.add(pages, owner, order, on_host);
  if (growth.device_is_full) room_.note_refused(pages.count);
  if (growth.status != DriverStatus::ok) return growth.status;
  room_.note_growth();
  if (vmm_ && streams_.several() && !on_host) room_.ask();
  note_mapping(true, pages);
  return growth.status;
}

bool DeviceHeap::ungrow(PageRange pages) {
  if (!home_mapper_.remove(pages)) return false;
  note_mapping(false, pages);
  return true;
}

// --- giving back -------------------------------------------------------------------------------

DriverStatus DeviceHeap::finish_streams() {
  if (streams_.streams() == 0) return DriverStatus::ok;
  const DriverStatus status = streams_.finish();
  if (status != DriverStatus::ok) return status;
  refused_.take_back();
  settle_all();
  return status;
}

void DeviceHeap::settle_all() { pools_.open(0); }

DriverStatus DeviceHeap::trim(std::uint64_t keep_bytes) {
  const bool enough = reserved_bytes() <= keep_bytes && spilled_bytes() == 0;
  const bool nothing = home_.present_pages() == 0 && memory().unreleased() == 0;
  if (enough || nothing) return DriverStatus::ok;
  if (streams_.any_capturing()) return DriverStatus::capture_unsupported;
  reclaim_given_up();
  if (const DriverStatus status = finish_streams(); status != DriverStatus::ok) return status;
  mapper_.unmap_retired();
  memory().retry_releases();
  room_.forget();
  if (!vmm_) return ungrow_segments(keep_bytes);
  bool refused = !mapper_.unmap_idle();
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
    refused |= !ungrow(leaving);
  }
  return refused ? DriverStatus::unknown : DriverStatus::ok;
}

DriverStatus DeviceHeap::ungrow_segments(std::uint64_t keep_bytes) {
  DriverStatus refusal = DriverStatus::ok;
  for (const PageRange& segment : std::vector(home_mapper_.segments())) {
    bool free = reserved_bytes() > keep_bytes;
    for (PageId i = 0; i < segment.count && free; ++i) {
      free = home_.is_free(segment.first + i, kAnyone);
    }
    if (!free) continue;
    const DriverStatus status = home_mapper_.remove_segment(segment);
    if (status == DriverStatus::ok) {
      note_mapping(false, segment);
    } else {
      refusal = status;
    }
  }
  return refusal;
}

DriverStatus DeviceHeap::release_all() {
  memory().retry_releases();
  if (const DriverStatus trimmed = trim(0); trimmed != DriverStatus::ok) return trimmed;
  if (home_.present_pages() != 0) return DriverStatus::invalid_value;
  const DriverStatus windows_status = mapper_.release_all();
  const DriverStatus home_status = home_mapper_.release_all();
  return windows_status != DriverStatus::ok ? windows_status : home_status;
}

}  // namespace gapless
