// Home: the rules that hold between its blocks, its holes' bins and what it knows by page.
#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "allocator/heap/home.h"

namespace gapless {

void Home::validate() const {
  const auto check = [](bool holds, const char* rule) {
    if (!holds) throw std::logic_error(std::string("home: ") + rule);
  };
  std::vector<Bitmap> pages;
  std::vector<std::uint64_t> units(holes_.size(), 0);
  std::vector<std::uint32_t> counts(holes_.size(), 0);
  for (std::size_t i = 0; i < holes_.size(); ++i) pages.emplace_back(max_pages_);
  std::vector<BlockId> absent;
  Bitmap present(max_pages_);
  present.set_range(0, max_pages_);
  std::uint64_t prefix_units = 0;
  std::uint64_t suffix_units = 0;
  Unit expected = 0;
  BlockId before = 0;
  for (BlockId id = first_; id != 0; id = blocks_[id].next) {
    const Block& block = blocks_[id];
    check(block.begin == expected && block.size > 0, "blocks do not tile");
    check(block.prev == before, "a broken chain");
    check(block.state != BlockState::unused && block.state != BlockState::window,
          "a block that does not belong here");
    if (block.state == BlockState::absent) {
      absent.push_back(id);
      check(block.begin % page_units_ == 0 && block.size % page_units_ == 0,
            "absent memory is not whole pages");
      for (PageId page = page_down(block.begin); page < page_down(block.end()); ++page) {
        check(frames_.pages(page) == 1, "an absent page in a frame");
      }
      present.clear_range(page_down(block.begin), page_down(block.end()));
    }
    if (block.state == BlockState::hole) {
      check(block.owner < holes_.size() && holes_[block.owner], "an owner nobody knows");
      units[block.owner] += block.size;
      ++counts[block.owner];
      const PageId boundary = frame_up(block.begin);
      if (boundary < frame_down(block.end())) {
        pages[block.owner].set_range(boundary, frame_down(block.end()));
      }
      const Unit at = boundary * page_units_;
      if (block.end() > at) check(starts_[boundary] == id, "a hole missing at its boundary");
      if (block.begin < at && block.end() >= at) check(suffix_[boundary] == id, "a lost suffix");
      const bool begins = block.begin == page_up(block.begin) * page_units_;
      const bool ends = block.end() == page_up(block.begin) * page_units_;
      if (begins != ends && block.size < page_units_) {
        (begins ? prefix_units : suffix_units) += block.size;
      }
      if (before != 0 && blocks_[before].state == BlockState::hole) {
        check(blocks_[before].owner != block.owner,
              "two neighbouring holes of one owner stay apart");
      }
    }
    expected = block.end();
    before = id;
  }
  check(expected == max_pages_ * page_units_, "blocks do not reach the end");
  check(std::accumulate(units.begin(), units.end(), std::uint64_t{0}) == free_units_,
        "free units do not add up");
  check(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == tally_.current,
        "the number of holes is wrong");
  check(prefix_units == prefix_units_ && suffix_units == suffix_units_,
        "the sums of free begins and ends are wrong");
  check(absent == absent_, "the list of absent blocks is wrong");
  for (PageId page = 0; page < max_pages_; ++page) {
    check(present.test(page) == present_.test(page), "a page is present and absent");
  }
  for (PageId page = 0; page < page_owner_.size(); ++page) {
    const Owner owner = page_owner_[page];
    check(owner == kNobody || pages[owner].test(page), "a page's owner is wrong");
  }
  for (std::size_t owner = 0; owner < holes_.size(); ++owner) {
    if (!holes_[owner]) continue;
    for (PageId page = pages[owner].find_set(0); page != Bitmap::npos && !page_owner_.empty();
         page = pages[owner].find_set(page + 1)) {
      check(page_owner_[page] == owner, "a free page's owner is not known");
    }
    holes_[owner]->bins.validate();
    check(holes_[owner]->bins.count() == counts[owner], "a hole is not in its bins");
    for (std::uint32_t word = 0; word < pages[owner].words(); ++word) {
      check(pages[owner].word(word) == holes_[owner]->pages.word(word),
            "the bits of wholly free pages are wrong");
    }
  }
}

}  // namespace gapless
