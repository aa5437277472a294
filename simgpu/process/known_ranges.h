// KnownRanges: of which bytes of device memory the simulated GPU knows what they hold.
//
//   0x7000'0000  [ known: a mask that the host copied down ][ none: a weight ][ likely: indices ]
//
// known    what a GPU would hold: it came from the host, or was computed of nothing else
// likely   numbers that may stand for what a GPU would hold: random draws, the experts that a
//          router chooses, and whatever was computed of such
// none     nobody knows (and it reads as zeros)
//
// The contents themselves are MemoryModel's. Ranges go by virtual address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace gapless::simgpu {

enum class Knowledge : std::uint8_t { none, likely, known };

class KnownRanges {
 public:
  void set(std::uint64_t begin, std::uint64_t bytes, Knowledge knowledge) {
    if (bytes == 0 || (knowledge == Knowledge::none && ranges_.empty())) return;
    std::uint64_t end = begin + bytes;
    auto next = first_after(begin);
    while (next != ranges_.end() && next->first < end) {
      const auto [from, range] = *next;
      next = ranges_.erase(next);
      if (from < begin) ranges_[from] = {begin, range.knowledge};
      if (range.end > end) ranges_[end] = {range.end, range.knowledge};
    }
    if (knowledge == Knowledge::none) return;
    // Neighbours of the same kind become one.
    if (auto after = ranges_.find(end);
        after != ranges_.end() && after->second.knowledge == knowledge) {
      end = after->second.end;
      ranges_.erase(after);
    }
    if (auto before = ranges_.lower_bound(begin); before != ranges_.begin()) {
      --before;
      if (before->second.end == begin && before->second.knowledge == knowledge) {
        before->second.end = end;
        return;
      }
    }
    ranges_[begin] = {end, knowledge};
  }

  /// The least that is known of any of these bytes.
  [[nodiscard]] Knowledge least(std::uint64_t begin, std::uint64_t bytes) const {
    const std::uint64_t end = begin + bytes;
    Knowledge found = Knowledge::known;
    for (auto range = first_after(begin); begin < end; ++range) {
      if (range == ranges_.end() || range->first > begin) return Knowledge::none;
      found = std::min(found, range->second.knowledge);
      begin = range->second.end;
    }
    return found;
  }

  /// Whether anything is known of any of them.
  [[nodiscard]] bool any(std::uint64_t begin, std::uint64_t bytes) const {
    const auto range = first_after(begin);
    return bytes != 0 && range != ranges_.end() && range->first < begin + bytes;
  }

  /// How many bytes from here on something is known of, without a gap.
  [[nodiscard]] std::uint64_t stretch(std::uint64_t begin) const {
    std::uint64_t end = begin;
    for (auto range = first_after(begin); range != ranges_.end() && range->first <= end; ++range) {
      end = range->second.end;
    }
    return end - begin;
  }

  /// What is known of `source` becomes known of `target`; the two may overlap.
  void copy(std::uint64_t target, std::uint64_t source, std::uint64_t bytes) {
    struct Part {
      std::uint64_t offset, bytes;
      Knowledge knowledge;
    };
    std::vector<Part> parts;
    for (auto range = first_after(source); range != ranges_.end() && range->first < source + bytes;
         ++range) {
      const std::uint64_t from = std::max(range->first, source);
      const std::uint64_t to = std::min(range->second.end, source + bytes);
      parts.push_back({from - source, to - from, range->second.knowledge});
    }
    set(target, bytes, Knowledge::none);
    for (const Part& part : parts) set(target + part.offset, part.bytes, part.knowledge);
  }

  /// Calls f(begin, end) for each range that something is known of.
  template <class F>
  void each(F&& f) const {
    for (const auto& [begin, range] : ranges_) f(begin, range.end);
  }

  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  /// The lowest address that something is known of; not of none.
  [[nodiscard]] std::uint64_t first() const { return ranges_.begin()->first; }

 private:
  struct Range {
    std::uint64_t end = 0;
    Knowledge knowledge = Knowledge::none;
  };
  using Ranges = std::map<std::uint64_t, Range>;  // by where they begin

  // The first range that ends after `address`.
  [[nodiscard]] static auto first_after_in(auto& ranges, std::uint64_t address) {
    auto range = ranges.upper_bound(address);
    if (range != ranges.begin() && std::prev(range)->second.end > address) --range;
    return range;
  }
  [[nodiscard]] Ranges::const_iterator first_after(std::uint64_t address) const {
    return first_after_in(ranges_, address);
  }
  [[nodiscard]] Ranges::iterator first_after(std::uint64_t address) {
    return first_after_in(ranges_, address);
  }

  Ranges ranges_;
};

}  // namespace gapless::simgpu
