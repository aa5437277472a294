// RangeSet: which bytes of an address space have a property, as ranges that do not touch.
//
//   add(10, 20), add(20, 25)   ->  [10, 25)
//   remove(12, 14)             ->  [10, 12) [14, 25)
//   inside(11, 16)             ->  [11, 12) [14, 16)
//
// Not thread-safe. O(log n) a range that changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace gapless {

class RangeSet {
 public:
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
  };

  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto next = first_from(begin);
    while (next != ranges_.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_[begin] = end;
  }

  void remove(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto next = first_from(begin);
    while (next != ranges_.end() && next->first < end) {
      const auto [from, to] = *next;
      next = ranges_.erase(next);
      if (from < begin) ranges_[from] = begin;
      if (to > end) ranges_[end] = to;
    }
  }

  /// What of [begin, end) is in the set, by address.
  [[nodiscard]] std::vector<Range> inside(std::uint64_t begin, std::uint64_t end) const {
    std::vector<Range> found;
    for (auto next = first_from(begin); next != ranges_.end() && next->first < end; ++next) {
      const Range part{std::max(next->first, begin), std::min(next->second, end)};
      if (part.begin < part.end) found.push_back(part);
    }
    return found;
  }

  void clear() { ranges_.clear(); }
  [[nodiscard]] bool empty() const { return ranges_.empty(); }

 private:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;  // begin -> end

  // The first range that ends at `address` or behind it.
  template <class Set>
  static auto first_from_in(Set& ranges, std::uint64_t address) {
    auto range = ranges.upper_bound(address);
    if (range != ranges.begin() && std::prev(range)->second >= address) --range;
    return range;
  }
  [[nodiscard]] Ranges::const_iterator first_from(std::uint64_t address) const {
    return first_from_in(ranges_, address);
  }
  [[nodiscard]] Ranges::iterator first_from(std::uint64_t address) {
    return first_from_in(ranges_, address);
  }

  Ranges ranges_;
};

}  // namespace gapless
