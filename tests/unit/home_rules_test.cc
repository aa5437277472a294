// validate() of the home and of its bins: every rule is broken once, and told.
#include <functional>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rule_breaker.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

template <class T>
std::string wrong_with(T& checked) {
  try {
    checked.validate();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "nothing";
}

// Pages of 16 units, of one stream or several.
//
//   page    0            1            2            3           4     5
//   blocks  | live 8 | hole 8 + 16 + 4    | live 12| hole 16  | live | absent ...
//             first    large                 middle  whole      last
class HomeRules : public ::testing::Test {
 protected:
  static constexpr Unit kPage = 16;
  static constexpr Owner kOne = 1;
  static constexpr Owner kTwo = 2;

  HomeRules() {
    home.add_pages({0, 5}, kOne, 1);
    first = carve(0, 8);
    large = blocks[first].next;
    middle = carve(36, 12);
    whole = blocks[middle].next;
    last = carve(64, 16);
    rest = blocks[last].next;
    home.validate();
  }
  BlockId carve(Unit begin, Unit size) {
    return home.carve(home.hole_at(begin), {begin, size}, BlockState::live);
  }
  void expect(const char* rule) {
    EXPECT_THAT(wrong_with(home), HasSubstr(std::string("home: ") + rule));
  }

  BlockTable blocks;
  Home home{blocks, kPage, 8};
  BlockId first = 0;
  BlockId large = 0;
  BlockId middle = 0;
  BlockId whole = 0;
  BlockId last = 0;
  BlockId rest = 0;  // absent
};

TEST_F(HomeRules, HoldAtFirst) {
  EXPECT_EQ(wrong_with(home), "nothing");
  home.tell_streams_apart(1);
  home.hold_streams_apart(true);
  EXPECT_EQ(wrong_with(home), "nothing");
}

TEST_F(HomeRules, BlocksTile) {
  blocks[first].size -= 1;
  expect("blocks do not tile");
  blocks[first].size += 2;
  expect("blocks do not tile");
}

TEST_F(HomeRules, NoBlockIsEmpty) {
  blocks[first].begin = blocks[first].size;
  blocks[first].size = 0;
  expect("blocks do not tile");
}

TEST_F(HomeRules, BlocksReachTheEnd) {
  home.add_pages({5, 3}, kOne, 1);
  carve(80, 48);
  home.validate();
  blocks[blocks[last].next].size -= 1;
  expect("blocks do not reach the end");
}

TEST_F(HomeRules, BlocksKnowTheirNeighbours) {
  blocks[middle].prev = first;
  expect("a broken chain");
}

TEST_F(HomeRules, NoOtherBlockIsAmongThem) {
  for (const BlockState state : {BlockState::unused, BlockState::window}) {
    blocks[middle].state = state;
    expect("a block that does not belong here");
  }
}

TEST_F(HomeRules, AbsentMemoryIsWholePages) {
  blocks[last].size += 1;
  blocks[rest].begin += 1;
  blocks[rest].size -= 1;
  expect("absent memory is not whole pages");
}

TEST_F(HomeRules, AbsentPagesAreInNoFrame) {
  home.join_absent({6, 2}, 1);
  expect("an absent page in a frame");
}

TEST_F(HomeRules, APageIsPresentOrAbsent) {
  RuleBreaker::present(home).set_range(5, 6);
  expect("a page is present and absent");
  RuleBreaker::present(home).clear_range(4, 6);
  expect("a page is present and absent");
}

TEST_F(HomeRules, AbsentBlocksAreListed) {
  RuleBreaker::absent(home).pop_back();
  expect("the list of absent blocks is wrong");
}

TEST_F(HomeRules, OwnersOfHolesAreKnown) {
  blocks[whole].owner = 77;
  expect("an owner nobody knows");
}

TEST_F(HomeRules, HolesAreKnownAtTheirBoundaries) {
  RuleBreaker::starts(home).at(1) = 0;
  expect("a hole missing at its boundary");
}

TEST_F(HomeRules, TheirBeginsInAPageAreKnown) {
  RuleBreaker::suffix(home).at(1) = whole;
  expect("a lost suffix");
}

TEST_F(HomeRules, NeighboursOfOneOwnerAreOneHole) {
  home.tell_streams_apart(1);
  home.hold_streams_apart(true);
  home.free(middle, kTwo, 2);
  home.validate();
  blocks[large].owner = kTwo;
  expect("two neighbouring holes of one owner stay apart");
}

TEST_F(HomeRules, FreeUnitsAddUp) {
  RuleBreaker::free_units(home) += 1;
  expect("free units do not add up");
}

TEST_F(HomeRules, HolesAreCounted) {
  RuleBreaker::tally(home).current += 1;
  expect("the number of holes is wrong");
}

TEST_F(HomeRules, FreeEndsOfPagesAddUp) {
  RuleBreaker::prefix_units(home) += 1;
  expect("the sums of free begins and ends are wrong");
  RuleBreaker::prefix_units(home) -= 1;
  RuleBreaker::suffix_units(home) += 1;
  expect("the sums of free begins and ends are wrong");
}

TEST_F(HomeRules, PagesHaveTheirOwners) {
  home.tell_streams_apart(1);
  home.hold_streams_apart(true);
  RuleBreaker::page_owner(home).at(0) = kOne;  // is in use
  expect("a page's owner is wrong");
  RuleBreaker::page_owner(home).at(0) = RuleBreaker::kNobody;
  RuleBreaker::page_owner(home).at(3) = RuleBreaker::kNobody;  // is free
  expect("a free page's owner is not known");
}

TEST_F(HomeRules, HolesAreInTheirOwnersBins) {
  RuleBreaker::bins(home, kOne).remove(whole);
  expect("a hole is not in its bins");
}

TEST_F(HomeRules, BitsOfFreePagesAreRight) {
  RuleBreaker::pages(home, kOne).clear_range(3, 4);
  expect("the bits of wholly free pages are wrong");
  RuleBreaker::pages(home, kOne).set_range(3, 5);
  expect("the bits of wholly free pages are wrong");
}

// Holes of 40 units, and two in one bin that keeps its holes in order.
class BinRules : public ::testing::Test {
 protected:
  BinRules() {
    small = make(0, 40);
    larger = make(200'000, 100'001);
    large = make(100'000, 100'000);
    EXPECT_EQ(bin_of(100'000), bin_of(100'001));
    bins.validate();
  }
  BlockId make(Unit begin, Unit size) {
    const BlockId id = blocks.make();
    blocks[id].begin = begin;
    blocks[id].size = size;
    blocks[id].state = BlockState::hole;
    bins.insert(id);
    return id;
  }
  void expect(const char* rule) {
    EXPECT_THAT(wrong_with(bins), HasSubstr(std::string("size bins: ") + rule));
  }

  BlockTable blocks;
  SizeBins bins{blocks};
  BlockId small = 0;
  BlockId large = 0;
  BlockId larger = 0;
};

TEST_F(BinRules, TheBitmapKnowsTheLists) {
  const std::uint32_t bin = bin_of(40);
  RuleBreaker::words(bins).at(bin / 64) ^= std::uint64_t{1} << (bin % 64);
  expect("bitmap and list disagree");
}

TEST_F(BinRules, TheSummaryKnowsTheBitmap) {
  RuleBreaker::summary(bins) ^= std::uint64_t{1} << (bin_of(40) / 64);
  expect("summary and bitmap disagree");
}

TEST_F(BinRules, AHoleIsInTheBinOfItsSize) {
  blocks[small].size = 4000;
  expect("a hole in another's bin");
}

TEST_F(BinRules, ListsAreLinkedBothWays) {
  blocks[larger].link_prev = small;
  expect("a broken list");
}

TEST_F(BinRules, OnlyHolesAreInThem) {
  blocks[small].state = BlockState::live;
  expect("not a hole");
}

TEST_F(BinRules, LargeHolesAreInOrder) {
  std::swap(blocks[large].size, blocks[larger].size);
  expect("out of order");
  std::swap(blocks[large].size, blocks[larger].size);
  bins.validate();
  blocks[larger].size = blocks[large].size;
  std::swap(blocks[large].begin, blocks[larger].begin);
  expect("out of order");  // of one size: by address
}

TEST_F(BinRules, HolesAreCounted) {
  RuleBreaker::count(bins) += 1;
  expect("the count is wrong");
}

}  // namespace
}  // namespace gapless
