// FreePages: which pages are free within a reach, for who asks of many while nothing changes.
//
//   page       0 1 2 3 4 5 6 7
//   anyone's   0 1 1 0 0 0 1 0
//   own        0 0 0 1 0 0 0 0      count_from(1, 7) = 3, count_before(4, 4) = 3,
//   free       0 1 1 1 0 0 1 0      count_used_from(4, 4) = 2
//
// With one stream and no exceptions that is a look at two bitmaps, 64 pages at a time; else the
// home is asked page by page.
#pragma once

#include <cstdint>

#include "allocator/heap/home.h"

namespace gapless {

class FreePages {
 public:
  FreePages(const Home& home, Reach reach) : home_(home), reach_(reach) {
    const bool simple =
        reach.others_up_to == 0 && home.mixed_.count() == 0 && reach.except == nullptr;
    Home::Holes* anyones = home.holes_of(reach.anyone);
    if (!simple || anyones == nullptr) return;
    Home::Holes* own = reach.owner != kAnyone ? home.holes_of(reach.owner) : nullptr;
    anyones_ = &anyones->pages;
    own_ = own != nullptr ? &own->pages : anyones_;
  }
  [[nodiscard]] const Reach& reach() const { return reach_; }
  /// Whether there is one stream, and no exception.
  [[nodiscard]] bool is_of_bitmaps() const { return anyones_ != nullptr; }
  /// Home::is_free(page, reach).
  [[nodiscard]] bool operator()(PageId page) const {
    if (anyones_ == nullptr) [[unlikely]]
      return home_.is_free(page, reach_);
    return anyones_->test(page) || own_->test(page);
  }
  /// How many pages are free in one run from that page on, of `most` at most.
  [[nodiscard]] PageId count_from(PageId page, PageId most) const;
  /// How many are not, in one run from there on.
  [[nodiscard]] PageId count_used_from(PageId page, PageId most) const;
  /// How many are free in the run that ends before page `end`.
  [[nodiscard]] PageId count_before(PageId end, PageId most) const;

 private:
  /// Which of the 64 pages from 64 * index on are free, where there are bitmaps.
  [[nodiscard]] std::uint64_t free_word(PageId index) const {
    return anyones_->word(index) | own_->word(index);
  }
  template <bool kFree>
  [[nodiscard]] PageId count_alike_from(PageId page, PageId most) const;

  const Home& home_;
  Reach reach_;
  const Bitmap* anyones_ = nullptr;  // null: ask the home
  const Bitmap* own_ = nullptr;
};

}  // namespace gapless
