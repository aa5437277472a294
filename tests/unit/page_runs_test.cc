// Pages asked in runs, against the same asked one by one; and the search for a place in a window,
// which looks at few of them, against one that looks at all.
#include "allocator/heap/page_runs.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/heap/free_pages.h"
#include "allocator/heap/home.h"
#include "allocator/heap/windows.h"

namespace gapless {
namespace {

constexpr Unit kUnits = 16;  // of a page
constexpr PageId kPages = 300;
constexpr Owner kStream = 1;

// A home of which about half is used, in blocks of up to 12 pages, by whole pages or not.
class RandomHome {
 public:
  RandomHome(std::uint32_t seed, bool several) : random_(seed) {
    if (random_() % 2 == 0) home_.join_absent({0, kPages}, 3);
    home_.add_pages({0, kPages}, kStream, 1);
    if (several) home_.tell_streams_apart(1);
    std::vector<BlockId> blocks;
    for (;;) {
      const Unit size = below(3) == 0 ? 1 + below(3 * kUnits) : kUnits * (1 + below(12));
      const Fit fit = home_.fit(size, kStream);
      if (fit.hole == 0) break;
      blocks.push_back(home_.carve(fit.hole, {fit.begin, size}, BlockState::live));
    }
    Epoch epoch = 2;
    for (const BlockId block : blocks) {
      if (below(2) == 0) home_.free(block, several ? Owner(1 + below(2)) : kStream, epoch++);
    }
    last_epoch_ = epoch;
  }
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
  Reach draw_reach(bool several) {
    return several && below(2) == 0 ? Reach(kStream, below(last_epoch_)) : Reach(kStream);
  }
  // Runs of pages and single ones in any order; with gaps.
  std::vector<PageId> draw_order(bool gaps) {
    std::vector<bool> taken(kPages, false);
    std::vector<PageId> order;
    const std::uint32_t places = 1 + below(kPages / 2);
    while (order.size() < places) {
      const PageId first = home_.frames().begin(below(kPages));
      const PageId end = home_.frames().up(std::min(kPages, first + 1 + below(40)));
      for (PageId page = first; page < end && !taken[page]; ++page) {
        taken[page] = true;
        order.push_back(page);
      }
      if (gaps && below(4) == 0) order.push_back(kNoPage);
    }
    return order;
  }
  [[nodiscard]] const Home& home() const { return home_; }

 private:
  std::mt19937 random_;
  BlockTable blocks_;
  Home home_{blocks_, kUnits, kPages};
  Epoch last_epoch_ = 0;
};

TEST(FreePages, CountWhatTheHomeSaysPageByPage) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const bool several = seed % 2 == 1;
    RandomHome random(seed, several);
    for (int step = 0; step < 200; ++step) {
      const Reach reach = random.draw_reach(several);
      const FreePages free(random.home(), reach);
      const auto is_free = [&](PageId page) { return random.home().is_free(page, reach); };
      const PageId page = random.below(kPages);
      ASSERT_EQ(free(page), is_free(page));
      const PageId most = random.below(kPages - page + 1);
      PageId count = 0;
      while (count < most && is_free(page + count)) ++count;
      ASSERT_EQ(free.count_from(page, most), count);
      PageId used = 0;
      while (used < most && !is_free(page + used)) ++used;
      ASSERT_EQ(free.count_used_from(page, most), used);
      const PageId most_before = random.below(page + 1);
      PageId before = 0;
      while (before < most_before && is_free(page - 1 - before)) ++before;
      ASSERT_EQ(free.count_before(page, most_before), before);
    }
  }
}

TEST(PageRuns, AnswerAsTheirPagesDo) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    RandomHome random(seed, false);
    const FreePages free(random.home(), kStream);
    const std::vector<PageId> pages = random.draw_order(true);
    const PageRuns runs(pages);
    const auto places = static_cast<std::uint32_t>(pages.size());
    const auto is_free = [&](std::uint32_t place) {
      return pages[place] != kNoPage && free(pages[place]);
    };
    for (std::uint32_t begin = 0; begin < places; ++begin) {
      const std::uint32_t end = begin + random.below(places - begin + 1);
      std::uint32_t free_end = begin;
      while (free_end < end && is_free(free_end)) ++free_end;
      ASSERT_EQ(runs.free_from(begin, end, free), free_end);
      std::uint32_t free_begin = end;
      while (free_begin > begin && is_free(free_begin - 1)) --free_begin;
      ASSERT_EQ(runs.free_before(end, begin, free), free_begin);
      std::uint32_t next = begin;
      while (next < end && !is_free(next)) ++next;
      ASSERT_EQ(runs.next_free(begin, end, free), next);
      std::vector<PageId> seen(end - begin, kNoPage);
      runs.for_each(begin, end, [&](const PageRun& run) {
        for (PageId i = 0; i < run.count; ++i) seen.at(run.place - begin + i) = run.page + i;
      });
      ASSERT_EQ(seen, std::vector<PageId>(pages.begin() + begin, pages.begin() + end));
    }
  }
}

TEST(PageRuns, AreOfNeighboursOnly) {
  std::vector<PageRun> seen;
  PageRuns({7, 8, 9, 3, kNoPage, 4, 5}).for_each(1, 6, [&](const PageRun& run) {
    seen.push_back(run);
  });
  EXPECT_EQ(seen, (std::vector<PageRun>{{1, 8, 2}, {3, 3, 1}, {5, 4, 1}}));
}

// The first run of free memory in each extent, the oldest first, looking at every place.
class EveryPlace {
 public:
  EveryPlace(const Home& home, const FreePages& free, bool edges)
      : home_(home), free_(free), edges_(edges) {}

  [[nodiscard]] std::optional<Unit> find(const std::vector<PageId>& pages, std::uint32_t begin,
                                         std::uint32_t end, Unit size) const {
    const auto is_free = [&](std::uint32_t place) {
      return pages[place] != kNoPage && free_(pages[place]);
    };
    // What lies in older extents altogether was found there.
    std::uint32_t place = begin;
    while (place > 0 && (begin - place) * kUnits < size && is_free(place - 1)) --place;
    for (; place < end; ++place) {
      if (!is_free(place)) continue;
      const std::uint32_t first = place;
      while (place < end && is_free(place)) ++place;
      const Unit whole = (place - first) * kUnits;
      const Unit part = size % kUnits;
      const bool skips = edges_ && part != 0 && home_.prefers_free_prefix();
      if (whole >= size) return first * kUnits + (skips ? kUnits - part : 0);
      if (!edges_) continue;
      Unit prefix = 0;
      Unit suffix = 0;
      if (place < end && pages[place] != kNoPage) {
        prefix = home_.free_prefix(pages[place], free_.reach());
      }
      if (first > 0 && pages[first - 1] != kNoPage) {
        suffix = home_.free_suffix(pages[first - 1], free_.reach());
      }
      if (whole + prefix >= size) return first * kUnits;
      if (whole + prefix + suffix >= size) return first * kUnits - (size - whole - prefix);
    }
    return {};
  }

 private:
  const Home& home_;
  const FreePages& free_;
  bool edges_;
};

TEST(Windows, FindTheSamePlaceThatALookAtEveryPlaceDoes) {
  int found = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const bool several = seed % 4 == 3;
    const bool edges = seed % 2 == 0;
    RandomHome random(seed, several);
    Windows windows(random.home(), edges);
    struct Extent {
      WindowId window;
      std::uint32_t begin;
      std::uint32_t end;
    };
    std::vector<Extent> extents;
    for (int i = 0; i < 6; ++i) {
      const std::vector<PageId> pages = random.draw_order(false);
      const auto places = static_cast<std::uint32_t>(pages.size());
      const std::uint32_t first = 1 + random.below(places);
      const WindowId id = windows.add(0x1000 * i, kPages, {pages.begin(), pages.begin() + first});
      extents.push_back({id, 0, first});
      if (first < places) {
        windows.extend(id, {pages.begin() + first, pages.end()});
        extents.push_back({id, first, places});
      }
      (void)windows.home_ranges({id, 0, kUnits});  // its runs are known before pages go
      for (std::uint32_t drops = random.below(3); drops > 0; --drops) {
        const std::uint32_t place = random.below(places);
        const PageId page = windows.at(id).pages[place];
        if (page == kNoPage) continue;
        windows.drop_page(id, place);
        if (random.below(2) == 0) windows.set_page(id, place, page);
      }
    }
    windows.validate();
    for (int step = 0; step < 60; ++step) {
      // Without an edge a whole page is what it takes.
      const Unit size = kUnits + random.below(random.below(2) == 0 ? 4 * kUnits : 40 * kUnits);
      const FreePages free(random.home(), random.draw_reach(several));
      const EveryPlace every(random.home(), free, edges);
      std::optional<WindowSpot> expected;
      for (const Extent& extent : extents) {
        const std::vector<PageId>& pages = windows.at(extent.window).pages;
        const auto begin = every.find(pages, extent.begin, extent.end, size);
        if (begin) expected = WindowSpot{extent.window, *begin, size};
        if (begin) break;
      }
      const auto spot = windows.find(size, free.reach());
      if (!expected) {
        // Two edges may do without a page between them, which is not looked for above.
        const Unit least = spot ? spot->size : 0;
        ASSERT_LE(least, edges ? 16 * kUnits : 0) << "seed " << seed << ", " << size;
        continue;
      }
      ASSERT_TRUE(spot) << "seed " << seed << ", " << size;
      if (spot->window == expected->window && spot->begin == expected->begin) ++found;
      if (size <= 16 * kUnits && edges) continue;  // such a one may have come before
      ASSERT_EQ(spot->window, expected->window) << "seed " << seed << ", " << size;
      ASSERT_EQ(spot->begin, expected->begin) << "seed " << seed << ", " << size;
    }
  }
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace gapless
