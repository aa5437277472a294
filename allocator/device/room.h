// Room: how many more pages may be had, as far as is known, so that what cannot be had is not
// tried.
//
//   limit    |-------------------------------------|  that the user or PyTorch set
//   device   |---------------------------|            what it said, or showed by refusing
//   owed                            |----|            left to pools that lent memory (lenders.h)
//   left     | reserved ... |------>|                 pages that may be had still
//
// The device is asked at most once in a request, and only before growth that is large or may be too
// large: few calls in all.
#pragma once

#include <algorithm>
#include <cstdint>

#include "allocator/base/bytes.h"
#include "allocator/device/home_mapper.h"
#include "allocator/device/lenders.h"

namespace gapless {

class Room {
 public:
  Room(const HomeMapper& home, const Lenders& lenders, Unit page_units)
      : home_(home), lenders_(lenders), page_units_(page_units) {}

  /// Another request: the device is asked anew.
  void begin_request() { asked_ = told_ = false; }
  /// Whose requests are served now: what is left for that pool they may have; 0: no pool's.
  void serve(PoolIndex pool) { served_pool_ = pool; }
  [[nodiscard]] PoolIndex served_pool() const { return served_pool_; }

  /// Whether so many more pages may be had, by what is known.
  [[nodiscard]] bool is_known_for(std::uint64_t pages) const {
    const std::uint64_t more = pages + owed_pages();
    return home_.device_pages() + more <= ceiling_pages_ && more <= home_.limit_pages_left();
  }
  /// The same before they are created: where they may not be there the device is asked.
  [[nodiscard]] bool is_there_for(std::uint64_t pages) {
    if (pages == 0) return true;
    if (pages + owed_pages() > home_.limit_pages_left()) return false;
    if (!home_.uses_vmm()) return true;  // one call says it, and takes nothing where it is refused
    const bool is_known = ceiling_pages_ != UINT64_MAX;
    const bool takes_little =
        is_known && home_.device_pages() + owed_pages() + 2 * pages <= ceiling_pages_;
    if (!asked_ && (pages > kAskFrom || !takes_little)) ask();
    return pages <= pages_left();
  }
  /// Whether a request that lacks so many pages, beyond all that is free here, could be served.
  [[nodiscard]] bool could_serve(std::uint64_t lacking) {
    if (lacking <= home_.limit_pages_left()) ask();
    return lacking <= pages_left();
  }
  /// Pages that may be had, by the limit and by what the device said where it was asked.
  [[nodiscard]] std::uint64_t pages_left() const {
    const std::uint64_t of_limit = home_.limit_pages_left();
    const std::uint64_t of_device =
        ceiling_pages_ - std::min<std::uint64_t>(ceiling_pages_, home_.device_pages());
    const std::uint64_t most = told_ ? std::min(of_device, of_limit) : of_limit;
    return most - std::min(most, owed_pages());
  }
  /// Whether the device said in this request what it has, or showed it.
  [[nodiscard]] bool is_told() const { return told_; }

  void ask() {
    asked_ = true;
    if (const auto free = home_.memory().free_on_device()) {
      told_ = true;
      ceiling_pages_ = home_.device_pages() + *free / home_.page_bytes();
    }
  }
  /// The device refused so many pages.
  void note_refused(std::uint64_t pages) {
    ceiling_pages_ = home_.device_pages() + pages - 1;
    asked_ = told_ = true;
  }
  /// Pages came.
  void note_growth() {
    if (home_.device_pages() > ceiling_pages_) ceiling_pages_ = UINT64_MAX;
  }
  /// The device may have more than it had.
  void forget() { ceiling_pages_ = UINT64_MAX; }

 private:
  // The device is asked before growth by more pages than this, and before growth that takes more
  // than half of what it was last known to have.
  static constexpr std::uint64_t kAskFrom = 64;

  /// Pages that are left to pools for what they lent, but not to the one that is served now.
  [[nodiscard]] std::uint64_t owed_pages() const {
    if (!lenders_.any()) return 0;
    return div_up(lenders_.owed_units(served_pool_), std::uint64_t{page_units_});
  }

  const HomeMapper& home_;
  const Lenders& lenders_;
  Unit page_units_;
  PoolIndex served_pool_ = 0;
  bool asked_ = false;
  bool told_ = false;
  // The device had no more than this many pages when it last refused or was asked.
  std::uint64_t ceiling_pages_ = UINT64_MAX;
};

}  // namespace gapless
