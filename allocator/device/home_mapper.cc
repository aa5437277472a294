#include "allocator/device/home_mapper.h"

#include <algorithm>
#include <bit>

namespace gapless {

HomeMapper::HomeMapper(Driver& driver, DeviceIndex device, bool vmm, std::uint64_t page_bytes,
                       ShareType share, Home& home)
    : driver_(driver),
      device_(device),
      vmm_(vmm),
      page_bytes_(page_bytes),
      page_units_(home.page_units()),
      page_shift_(static_cast<unsigned>(std::countr_zero(page_units_))),
      home_(home),
      memory_(driver, device, share),
      space_(driver, device, std::uint64_t{home.max_pages()} * page_bytes),
      address_(home.max_pages(), 0),
      handle_(home.max_pages(), 0) {}

// --- what there is ------------------------------------------------------------------------------

std::optional<Unit> HomeMapper::unit_at(DeviceAddress address) const {
  // Segments lie anywhere.
  for (PageId page = 0; page < home_.max_pages(); ++page) {
    const DeviceAddress begin = address_[page];
    if (!home_.is_present(page) || address < begin || address - begin >= page_bytes_) continue;
    return page * page_units_ + static_cast<Unit>((address - begin) / kUnitBytes);
  }
  return {};
}

std::vector<MemoryPiece> HomeMapper::pieces_of(PageRange pages) const {
  std::vector<MemoryPiece> pieces;
  const Frames& frames = home_.frames();
  for (PageId page = pages.first; page < pages.first + pages.count; page = frames.end(page)) {
    pieces.push_back({frames.pages(page) * page_bytes_, handle_[page]});
  }
  return pieces;
}

void HomeMapper::note_pieces(PageId first, std::span<const MemoryPiece> pieces) {
  for (const MemoryPiece& piece : pieces) {
    for (const PageId end = home_.frames().end(first); first < end; ++first) {
      handle_[first] = piece.handle;
    }
  }
}

// --- pages come ---------------------------------------------------------------------------------

Growth HomeMapper::add(PageRange pages, Owner owner, FrameOrder order, bool on_host) {
  Growth growth;
  if (vmm_) {
    home_.join_absent(pages, order);
    growth = create_and_map(pages, on_host);
    if (growth.status != DriverStatus::ok) home_.separate_absent(pages);
  } else {
    growth.status = add_segment(pages);
  }
  if (growth.status != DriverStatus::ok) return growth;
  home_.add_pages(pages, owner, kNeverUsed);
  if (!on_host) device_pages_ += pages.count;
  ++growths_;
  return growth;
}

DriverStatus HomeMapper::take_addresses() {
  if (address_[0] != 0) return DriverStatus::ok;
  DeviceAddress base = 0;
  const DriverStatus status = space_.take(std::uint64_t{home_.max_pages()} * page_bytes_, base);
  if (status != DriverStatus::ok) return status;
  for (PageId page = 0; page < home_.max_pages(); ++page) {
    address_[page] = base + std::uint64_t{page} * page_bytes_;
  }
  return status;
}

Growth HomeMapper::create_and_map(PageRange pages, bool on_host) {
  std::vector<MemoryPiece> pieces = pieces_of(pages);
  if (const DriverStatus status = take_addresses(); status != DriverStatus::ok) return {status};
  const DeviceAddress address = address_[pages.first];
  const std::uint64_t bytes = pages.count * page_bytes_;
  if (space_.has_leftover(address, bytes) && !space_.clear_leftovers()) {
    return {DriverStatus::unknown};
  }
  DriverStatus status = on_host ? memory_.create_on_host(pieces) : memory_.create(pieces);
  if (status != DriverStatus::ok) {
    const bool full = status == DriverStatus::out_of_memory && !on_host;
    return {status, full && memory_.within_limit(bytes)};
  }
  status = space_.map(address, pieces);
  if (status == DriverStatus::ok) {
    note_pieces(pages.first, pieces);
  } else {
    memory_.release(pieces);
  }
  return {status};
}

DriverStatus HomeMapper::add_segment(PageRange pages) {
  if (pages.count > limit_pages_left()) return DriverStatus::out_of_memory;
  DeviceAddress address = 0;
  const DriverStatus status = driver_.mem_alloc(device_, pages.count * page_bytes_, address);
  if (status != DriverStatus::ok) return status;
  for (PageId i = 0; i < pages.count; ++i) {
    address_[pages.first + i] = address + std::uint64_t{i} * page_bytes_;
  }
  segments_.push_back(pages);
  return status;
}

DriverStatus HomeMapper::give_access(DeviceIndex peer) {
  for (PageId begin = 0; begin < home_.max_pages();) {
    PageId end = begin;
    while (end < home_.max_pages() && handle_[end] != 0) ++end;
    if (end > begin) {
      const DriverStatus status =
          space_.give_access(address_[begin], std::uint64_t{end - begin} * page_bytes_, peer);
      if (status != DriverStatus::ok) return status;
    }
    begin = end + 1;
  }
  return DriverStatus::ok;
}

// --- pages go -----------------------------------------------------------------------------------

bool HomeMapper::remove(PageRange pages) {
  const bool on_host = is_on_host(pages.first);
  if (space_.unmap(address_[pages.first], pages.count * page_bytes_) != DriverStatus::ok) {
    return false;
  }
  const std::vector<MemoryPiece> pieces = pieces_of(pages);
  home_.remove_pages(pages);
  memory_.release(pieces);
  note_gone(pages);
  if (!on_host) device_pages_ -= pages.count;
  return true;
}

DriverStatus HomeMapper::remove_segment(PageRange segment) {
  const DriverStatus status = driver_.mem_free(device_, address_[segment.first]);
  if (status != DriverStatus::ok) return status;
  home_.remove_pages(segment);
  device_pages_ -= segment.count;
  std::erase_if(segments_, [&](const PageRange& each) { return each.first == segment.first; });
  return status;
}

DriverStatus HomeMapper::put_to_sleep(PageId frame) {
  const PageRange pages{frame, home_.frames().pages(frame)};
  const DriverStatus status = space_.unmap(address_[frame], pages.count * page_bytes_);
  if (status != DriverStatus::ok) return status;
  memory_.release(pieces_of(pages));
  note_gone(pages);
  device_pages_ -= pages.count;
  return status;
}

DriverStatus HomeMapper::wake(std::vector<PageId>& frames) {
  if (!space_.clear_leftovers()) return DriverStatus::unknown;
  memory_.retry_releases();
  std::vector<MemoryPiece> pieces;
  pieces.reserve(frames.size());
  for (const PageId page : frames) pieces.push_back({home_.frames().pages(page) * page_bytes_, 0});
  DriverStatus status = memory_.create(pieces);
  if (status != DriverStatus::ok) return status;
  // Runs of neighbours: one call to give access for each.
  std::size_t mapped = 0;
  while (mapped < frames.size()) {
    std::size_t end = mapped + 1;
    while (end < frames.size() && frames[end] == home_.frames().end(frames[end - 1])) ++end;
    const auto run = std::span(pieces).subspan(mapped, end - mapped);
    status = space_.map(address_[frames[mapped]], run);
    if (status != DriverStatus::ok) break;
    note_pieces(frames[mapped], run);
    for (; mapped < end; ++mapped) device_pages_ += home_.frames().pages(frames[mapped]);
  }
  // What could not be mapped stays asleep.
  memory_.release(std::span(pieces).subspan(mapped));
  frames.erase(frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(mapped));
  return status;
}

DriverStatus HomeMapper::release_all() {
  const DriverStatus status = space_.release_all();
  std::fill(address_.begin(), address_.end(), DeviceAddress{0});
  return status;
}

}  // namespace gapless
