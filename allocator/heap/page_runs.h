// PageRuns: the pages of a window as runs of neighbours.
//
//   place     0   1   2   3   4   5   6
//   page      7   8   9   3   -   4   5        runs  0: 7, 8, 9   3: 3   5: 4, 5
//
// A request of gigabytes has thousands of pages, and few runs: what is asked of each of its pages
// is asked of a run at once. free_before(7, 0) with all free is 5, since place 4 holds none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "allocator/heap/free_pages.h"

namespace gapless {

/// A place in a window whose page was given back to the driver.
inline constexpr PageId kNoPage = UINT32_MAX;

struct PageRun {
  std::uint32_t place = 0;
  PageId page = 0;
  PageId count = 0;

  [[nodiscard]] std::uint32_t end() const { return place + count; }
  bool operator==(const PageRun&) const = default;
};

class PageRuns {
 public:
  PageRuns() = default;
  /// The page at each place, or kNoPage.
  explicit PageRuns(const std::vector<PageId>& pages) {
    const auto places = static_cast<std::uint32_t>(pages.size());
    for (std::uint32_t place = 0; place < places; ++place) {
      if (pages[place] == kNoPage) continue;
      if (!runs_.empty() && runs_.back().end() == place &&
          runs_.back().page + runs_.back().count == pages[place]) {
        ++runs_.back().count;
      } else {
        runs_.push_back({place, pages[place], 1});
      }
    }
  }

  /// Where the run of free pages begins that ends before place `end`; `floor` at least.
  [[nodiscard]] std::uint32_t free_before(std::uint32_t end, std::uint32_t floor,
                                          const FreePages& free) const {
    std::uint32_t at = end;
    if (at == floor) return at;
    auto run = run_of(at - 1);
    if (run == runs_.end()) return at;
    for (; at > floor && run->place < at && run->end() >= at; --run) {
      const std::uint32_t least = std::max(run->place, floor);
      at -= free.count_before(run->page + (at - run->place), at - least);
      if (at != least || run == runs_.begin()) break;
    }
    return at;
  }
  /// Where the run of free pages ends that begins with place `begin`; `ceiling` at most.
  [[nodiscard]] std::uint32_t free_from(std::uint32_t begin, std::uint32_t ceiling,
                                        const FreePages& free) const {
    std::uint32_t at = begin;
    if (at == ceiling) return at;
    for (auto run = run_of(at); run != runs_.end() && at < ceiling && run->place <= at; ++run) {
      const std::uint32_t most = std::min(run->end(), ceiling);
      at += free.count_from(run->page + (at - run->place), most - at);
      if (at != most) break;
    }
    return at;
  }
  /// The first place from `begin` on whose page is free; `ceiling` where there is none before it.
  [[nodiscard]] std::uint32_t next_free(std::uint32_t begin, std::uint32_t ceiling,
                                        const FreePages& free) const {
    for (auto run = run_of(begin); run != runs_.end() && run->place < ceiling; ++run) {
      const std::uint32_t first = std::max(run->place, begin);
      const std::uint32_t most = std::min(run->end(), ceiling) - first;
      const PageId used = free.count_used_from(run->page + (first - run->place), most);
      if (used != most) return first + used;
    }
    return ceiling;
  }
  /// Calls f(run) for the parts of runs at the places [begin, end).
  template <class F>
  void for_each(std::uint32_t begin, std::uint32_t end, F&& f) const {
    for (auto run = run_of(begin); run != runs_.end() && run->place < end; ++run) {
      const std::uint32_t first = std::max(run->place, begin);
      f(PageRun{first, run->page + (first - run->place), std::min(run->end(), end) - first});
    }
  }

  bool operator==(const PageRuns&) const = default;

 private:
  /// The first run that ends behind that place; where none does, the end.
  [[nodiscard]] std::vector<PageRun>::const_iterator run_of(std::uint32_t place) const {
    return std::partition_point(runs_.begin(), runs_.end(),
                                [place](const PageRun& run) { return run.end() <= place; });
  }

  std::vector<PageRun> runs_;
};

}  // namespace gapless
