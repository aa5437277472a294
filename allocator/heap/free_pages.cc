#include "allocator/heap/free_pages.h"

#include <algorithm>
#include <bit>

namespace gapless {

template <bool kFree>
PageId FreePages::count_alike_from(PageId page, PageId most) const {
  PageId count = 0;
  if (anyones_ == nullptr) {
    while (count < most && home_.is_free(page + count, reach_) == kFree) ++count;
    return count;
  }
  while (count < most) {
    const PageId at = page + count;
    const PageId inside = at & 63;
    const std::uint64_t word = free_word(at >> 6);
    const std::uint64_t others = (kFree ? ~word : word) >> inside;
    if (others != 0) return std::min(most, count + static_cast<PageId>(std::countr_zero(others)));
    count += 64 - inside;
  }
  return most;
}

PageId FreePages::count_from(PageId page, PageId most) const {
  return count_alike_from<true>(page, most);
}

PageId FreePages::count_used_from(PageId page, PageId most) const {
  return count_alike_from<false>(page, most);
}

PageId FreePages::count_before(PageId end, PageId most) const {
  PageId count = 0;
  if (anyones_ == nullptr) {
    while (count < most && home_.is_free(end - 1 - count, reach_)) ++count;
    return count;
  }
  while (count < most) {
    const PageId at = end - 1 - count;
    const PageId above = 63 - (at & 63);
    const std::uint64_t used = ~free_word(at >> 6) << above;
    if (used != 0) return std::min(most, count + static_cast<PageId>(std::countl_zero(used)));
    count += 64 - above;
  }
  return most;
}

}  // namespace gapless
