#include "allocator/device/window_mapper.h"

#include <algorithm>

namespace gapless {
namespace {

// Addresses a window gets for each page it begins with, so that it can be extended.
constexpr std::uint64_t kRoomFactor = 4;

// Sizes remembered at most; a program with more than that has forgotten what it did then.
constexpr std::size_t kMostSizes = 65536;

// Pages mapped between two events: recording and asking should cost little beside the mapping.
constexpr std::uint64_t kPagesPerEvent = 16;

// Addresses reserved at a time, in multiples of the home's.
constexpr std::uint64_t kReservationFactor = 2;

// And in all: 40 times the device's memory. Windows want 32 at most, `window_factor` 4, twice with
// several streams, and four addresses for each page. Eight devices of 288 GiB: 90 of 128 TiB, and
// their homes 9.
constexpr std::uint64_t kMostReservations = 5;

}  // namespace

WindowMapper::WindowMapper(Driver& driver, DeviceIndex device, std::uint64_t page_bytes, Home& home,
                           const BlockTable& blocks, StreamLedger& streams, const Options& options)
    : home_(home),
      blocks_(blocks),
      streams_(streams),
      page_bytes_(page_bytes),
      floor_(options.window_floor / page_bytes),
      factor_(options.window_factor),
      windows_(home, options.edge_sharing),
      planner_(home, windows_, blocks, options.edge_sharing),
      space_(driver, device, kReservationFactor * home.max_pages() * page_bytes,
             kMostReservations * kReservationFactor * home.max_pages() * page_bytes) {}

void WindowMapper::note_block(const WindowSpot& spot) {
  windows_.at(spot.window).live.push_back({spot.begin, spot.size});
  windows_.touch(spot.window);
  ++live_blocks_;
}

void WindowMapper::note_free(WindowId id, Unit begin, Owner owner, Epoch epoch) {
  Window& window = windows_.at(id);
  std::erase_if(window.live, [begin](const UnitRange& range) { return range.begin == begin; });
  for (const StreamIndex stream : streams_.sets().members(owner)) {
    if (window.freed_epoch.size() <= stream) window.freed_epoch.resize(stream + 1U, 0);
    window.freed_epoch[stream] = epoch;
  }
  if (--live_blocks_ == 0) record_events(false);
}

bool WindowMapper::is_there(const WindowSpot& spot, DeviceAddress address) const {
  if (!windows_.has(spot.window)) return false;
  const Window& window = windows_.at(spot.window);
  if (window.address != address || window.retired) return false;
  const auto last = (std::uint64_t{spot.begin} + spot.size - 1) / home_.page_units();
  if (last >= window.pages.size()) return false;
  const auto begin = window.pages.begin() + spot.begin / home_.page_units();
  const auto end = window.pages.begin() + static_cast<std::ptrdiff_t>(last) + 1;
  return std::find(begin, end, kNoPage) == end;
}

// --- planning a repair ---------------------------------------------------------------------------

bool WindowMapper::missed_before(Unit size) {
  if (missed_.size() >= kMostSizes) missed_.clear();
  return !missed_.insert(size).second;
}

std::vector<WindowId> WindowMapper::idle_windows() const {
  std::vector<WindowId> idle;
  windows_.for_each([&](WindowId id, const Window& window) {
    if (window.retired || !window.may_change()) return;
    for (std::size_t i = 0; i < window.freed_epoch.size(); ++i) {
      if (window.freed_epoch[i] > streams_.completed(static_cast<StreamIndex>(i))) return;
    }
    idle.push_back(id);
  });
  return idle;
}

void WindowMapper::poll() {
  pages_at_poll_ = counters_.pages_mapped;
  (void)streams_.poll();
  if (!streams_.several()) home_.settle(streams_.sets().owner_of(0), streams_.completed(0));
}

void WindowMapper::record_events(bool force) {
  if (counters_.pages_mapped < pages_at_event_ + kPagesPerEvent || streams_.pending()) return;
  pages_at_event_ = counters_.pages_mapped;
  for (std::size_t i = 0; i < streams_.streams(); ++i) {
    const auto stream = static_cast<StreamIndex>(i);
    (void)streams_.close_epoch(stream, force);
  }
}

std::optional<WindowPlan> WindowMapper::plan_repair(Unit size, Reach reach,
                                                    const WindowPlan& instead) {
  const bool repeats = missed_before(size);
  const bool many = windows_.mapped_pages() + instead.calls > most_mapped() + 1;
  if ((repeats && !many) || instead.calls <= 2) return {};
  if (streams_.pending() && counters_.pages_mapped >= pages_at_poll_ + kPagesPerEvent) poll();
  auto repair = planner_.plan_repair(size, reach, idle_windows(), instead.calls);
  record_events(true);
  return repair;
}

// --- mapping -------------------------------------------------------------------------------------

DriverStatus WindowMapper::unmap_places(WindowId id, std::uint32_t begin, std::uint32_t end) {
  const DriverStatus status = space_.unmap(windows_.at(id).address + begin * page_bytes_,
                                           std::uint64_t{end - begin} * page_bytes_);
  if (status != DriverStatus::ok) return status;
  for (std::uint32_t place = begin; place < end; ++place) windows_.drop_page(id, place);
  return status;
}

DriverStatus WindowMapper::clear_places(const WindowPlan& plan) {
  const std::vector<PageId>& pages = windows_.at(*plan.window).pages;
  std::vector<std::uint32_t> places = plan.drops;
  for (const WindowPlan::Fill& fill : plan.fills) {
    if (fill.place < pages.size() && pages[fill.place] != kNoPage) places.push_back(fill.place);
  }
  std::sort(places.begin(), places.end());
  // One call for each run of neighbours.
  for (std::size_t i = 0; i < places.size();) {
    const std::size_t first = i++;
    while (i < places.size() && places[i] == places[i - 1] + 1) ++i;
    const DriverStatus status = unmap_places(*plan.window, places[first], places[i - 1] + 1);
    if (status != DriverStatus::ok) return status;
  }
  return DriverStatus::ok;
}

std::vector<UnitRange> WindowMapper::home_ranges(const WindowPlan& plan, Unit size) const {
  std::vector<PageId> pages;
  if (plan.window) pages = windows_.at(*plan.window).pages;
  for (const auto& [place, page] : plan.fills) {
    if (place >= pages.size()) pages.resize(std::size_t{place} + 1, kNoPage);
    pages[place] = page;
  }
  return windows_.home_ranges(pages, plan.begin, size);
}

DriverStatus WindowMapper::map(const WindowPlan& plan, std::span<const MemHandle> handles,
                               Unit size, WindowSpot& spot) {
  auto room = static_cast<std::uint32_t>(plan.fills.size() * kRoomFactor);
  DeviceAddress address = 0;
  DriverStatus status = DriverStatus::ok;
  if (!plan.window) {
    status = space_.take(room * page_bytes_, address);
    if (status == DriverStatus::out_of_memory) {  // then it cannot be extended
      room = static_cast<std::uint32_t>(plan.fills.size());
      status = space_.take(room * page_bytes_, address);
    }
    lacks_addresses_ |= status == DriverStatus::out_of_memory;
  } else {
    const Window& window = windows_.at(*plan.window);
    address = window.address;
    const bool in_the_way = space_.has_leftover(address, window.room * page_bytes_);
    status = in_the_way && !space_.clear_leftovers() ? DriverStatus::unknown : clear_places(plan);
  }
  if (status != DriverStatus::ok) return status;
  spot.begin = plan.begin;
  spot.size = size;
  if (plan.fills.empty()) {  // an event let pages through that make the window good as it is
    spot.window = *plan.window;
    return status;
  }
  std::vector<AddressSpace::Mapping> mappings;
  mappings.reserve(plan.fills.size());
  for (const auto& [place, page] : plan.fills) {
    if (home_.frames().begin(page) != page) continue;  // with the page before it
    mappings.push_back({address + place * page_bytes_, frame_of(page, handles)});
  }
  status = space_.map(mappings);
  if (status != DriverStatus::ok) {
    if (!plan.window && !space_.has_leftover(address, room * page_bytes_)) {
      space_.put_back(address, room * page_bytes_);
    }
    return status;
  }
  counters_.pages_mapped += plan.fills.size();
  std::vector<PageId> behind;  // what comes after the window's last page
  std::size_t exchanged = 0;
  for (const auto& [place, page] : plan.fills) {
    if (plan.window && place < windows_.at(*plan.window).pages.size()) {
      windows_.set_page(*plan.window, place, page);
      ++exchanged;
    } else {
      behind.push_back(page);
    }
  }
  WindowId id = 0;
  if (plan.window) {
    id = *plan.window;
    if (!behind.empty()) windows_.extend(id, behind);
    ++(exchanged != 0 ? counters_.repaired : counters_.extended);
  } else {
    id = windows_.add(address, room, std::move(behind));
    ++counters_.made;
  }
  spot.window = id;
  windows_.touch(id);
  evict(id);
  return DriverStatus::ok;
}

// --- unmapping -----------------------------------------------------------------------------------

void WindowMapper::evict(WindowId keep) {
  const std::uint64_t bound = most_mapped();
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
    const Epoch epoch = streams_.now();
    if (streams_.close_epoch(static_cast<StreamIndex>(i), true) != DriverStatus::ok) {
      for (const WindowId id : leaving) windows_.at(id).retired = false;  // another time
      return;
    }
    after[i] = epoch;
  }
  for (const WindowId id : leaving) retiring_.push_back({id, after});
}

void WindowMapper::unmap_retired() {
  if (retiring_.empty()) return;
  poll();
  while (!retiring_.empty()) {
    const Retiring& next = retiring_.front();
    for (std::size_t i = 0; i < next.after.size(); ++i) {
      if (streams_.completed(static_cast<StreamIndex>(i)) < next.after[i]) return;
    }
    if (!unmap_window(next.window)) return;
    ++counters_.evicted;
    retiring_.pop_front();
  }
}

bool WindowMapper::unmap_window(WindowId id) {
  const Window& window = windows_.at(id);
  if (space_.has_leftover(window.address, window.room * page_bytes_) && !space_.clear_leftovers()) {
    return false;
  }
  // Runs of places that still hold their page; each is unmapped in one call.
  const auto count = static_cast<std::uint32_t>(window.pages.size());
  for (std::uint32_t begin = 0; begin < count;) {
    if (window.pages[begin] == kNoPage) {
      ++begin;
      continue;
    }
    std::uint32_t end = begin;
    while (end < count && window.pages[end] != kNoPage) ++end;
    if (unmap_places(id, begin, end) != DriverStatus::ok) return false;
    begin = end;
  }
  space_.put_back(window.address, window.room * page_bytes_);
  windows_.remove(id);
  lacks_addresses_ = false;
  return true;
}

bool WindowMapper::unmap_idle() {
  std::vector<WindowId> idle;
  windows_.for_each([&](WindowId id, const Window& window) {
    if (window.live.empty() && !window.retired && window.may_change()) idle.push_back(id);
  });
  bool done = true;
  for (const WindowId id : idle) done &= unmap_window(id);
  return done;
}

MemoryPiece WindowMapper::frame_of(PageId page, std::span<const MemHandle> handles) const {
  return {home_.frames().pages(page) * page_bytes_, handles[page]};
}

void WindowMapper::forget_asleep(const WindowPlace& place) {
  --windows_.at(place.window).asleep;
  forget_place(place);
}

void WindowMapper::forget_place(const WindowPlace& place) {
  for (PageId i = 0; i < home_.frames().pages(place.page); ++i) {
    windows_.drop_page(place.window, place.place + i);
  }
}

DriverStatus WindowMapper::unmap_frame(PageId page, std::vector<WindowPlace>& kept) {
  std::vector<std::pair<WindowPlace, bool>> places;
  windows_.for_each([&](WindowId id, const Window& window) {
    for (std::uint32_t place = 0; place < window.pages.size(); ++place) {
      if (window.pages[place] != page) continue;
      const Unit begin = place * home_.page_units();
      const Unit end = begin + home_.frames().pages(page) * home_.page_units();
      const bool live = std::any_of(window.live.begin(), window.live.end(), [&](const auto& range) {
        return range.begin < end && begin < range.begin + range.size;
      });
      // A graph may write to any place of a window that is pinned.
      places.push_back({{id, place, page}, live || window.pins != 0});
    }
  });
  for (const auto& [place, keeps] : places) {
    const DriverStatus status =
        space_.unmap(windows_.at(place.window).address + place.place * page_bytes_,
                     home_.frames().pages(page) * page_bytes_);
    if (status != DriverStatus::ok) return status;
    if (keeps) {
      kept.push_back(place);
      ++windows_.at(place.window).asleep;
    } else {
      forget_place(place);
    }
  }
  return DriverStatus::ok;
}

DriverStatus WindowMapper::map_places(std::vector<WindowPlace>& places,
                                      std::span<const MemHandle> handles) {
  if (!space_.clear_leftovers()) return DriverStatus::unknown;
  std::sort(places.begin(), places.end(), [](const WindowPlace& a, const WindowPlace& b) {
    return a.window != b.window ? a.window < b.window : a.place < b.place;
  });
  while (!places.empty()) {
    // The last run of neighbours, for one call to give access.
    std::size_t first = places.size() - 1;
    while (first > 0 && places[first - 1].window == places[first].window &&
           places[first - 1].place + home_.frames().pages(places[first - 1].page) ==
               places[first].place) {
      --first;
    }
    std::vector<AddressSpace::Mapping> mappings;
    for (std::size_t i = first; i < places.size(); ++i) {
      const DeviceAddress address =
          windows_.at(places[i].window).address + places[i].place * page_bytes_;
      mappings.push_back({address, frame_of(places[i].page, handles)});
    }
    if (const DriverStatus status = space_.map(mappings); status != DriverStatus::ok) return status;
    windows_.at(places[first].window).asleep -= static_cast<std::uint32_t>(places.size() - first);
    places.resize(first);
  }
  return DriverStatus::ok;
}

bool WindowMapper::drop_pages(PageRange pages) {
  std::vector<WindowPlace> places;
  windows_.for_each([&](WindowId id, const Window& window) {
    for (std::uint32_t place = 0; place < window.pages.size(); ++place) {
      const PageId page = window.pages[place];
      const bool leaves = page >= pages.first && page < pages.first + pages.count;
      if (leaves && home_.frames().begin(page) == page) places.push_back({id, place, page});
    }
  });
  return std::all_of(places.begin(), places.end(), [&](const WindowPlace& at) {
    const std::uint32_t end = at.place + home_.frames().pages(at.page);
    return unmap_places(at.window, at.place, end) == DriverStatus::ok;
  });
}

}  // namespace gapless
