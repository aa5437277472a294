// SmallPages: in which pages of the home small blocks lie.
//
//   page     0                     1                     2
//          | activation | 4 | hole | hole               | weight   | hole  |
//   small    1                      0                     0                   here, then: page 0
//
// One small block keeps a whole page from being lent or given back. Where a program keeps some in
// every step (a metric, a state, a bias's gradient) and each goes to the hole that suits its size
// best, in time most pages have one beside holes that serve nobody. So a small request goes beside
// small blocks while any of the holes looked at is there.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "allocator/heap/home.h"

namespace gapless {

class SmallPages {
 public:
  explicit SmallPages(const Home& home)
      : home_(home), most_(home.page_units() / kPart), ends_(home.max_pages()) {}

  /// Whether a request of that size is better served elsewhere: it is small, and no small block
  /// lies in the page of that unit.
  [[nodiscard]] bool better_elsewhere(Unit size, Unit begin) const {
    // Sizes cannot be predicted, so there is one branch on both.
    return (static_cast<unsigned>(size <= most_) & static_cast<unsigned>(count(begin) == 0)) != 0;
  }
  [[nodiscard]] bool is_small(Unit size) const { return size <= most_; }
  [[nodiscard]] bool has_small(Unit unit) const { return count(unit) != 0; }

  /// A block was made in the home, or is about to be freed.
  void note_made(const Block& block) {
    const auto ends = static_cast<unsigned>(is_small(block.size));
    ends_[home_.page_of(block.begin)] += ends;
    ends_[home_.page_of(block.end() - 1)] += ends;
  }
  void note_freed(const Block& block) {
    const auto ends = static_cast<unsigned>(is_small(block.size));
    ends_[home_.page_of(block.begin)] -= ends;
    ends_[home_.page_of(block.end() - 1)] -= ends;
  }

  /// Throws std::logic_error saying what is wrong, if anything is. O(blocks + pages).
  void validate() const {
    SmallPages counted(home_);
    home_.for_each([&](BlockId, const Block& block) {
      if (block.state == BlockState::live) counted.note_made(block);
    });
    if (counted.ends_ != ends_) throw std::logic_error("small pages: small blocks do not add up");
  }

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  // Small is up to a quarter of a page, 512 KiB. Below an eighth larger blocks that stay are spread
  // over the pages again; with half a page generated programs lose more
  // (docs/experiments/what-stays.md).
  static constexpr Unit kPart = 4;

  [[nodiscard]] std::uint32_t count(Unit unit) const { return ends_[home_.page_of(unit)]; }

  const Home& home_;
  Unit most_;
  std::vector<std::uint32_t> ends_;  // by page: how many small blocks begin or end there
};

}  // namespace gapless
