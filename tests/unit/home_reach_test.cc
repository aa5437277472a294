// Home with several streams and pools: whose memory is within reach, and how old it is.
#include <gtest/gtest.h>

#include "allocator/heap/home.h"

namespace gapless {
namespace {

// Eight pages of 16 units, of streams 1 and 2, and 3, which is of pool 5.
class HomeReach : public ::testing::Test {
 protected:
  static constexpr Unit kPage = 16;
  static constexpr Owner kOne = 1;
  static constexpr Owner kTwo = 2;
  static constexpr Owner kPooled = 3;
  static constexpr std::uint16_t kPool = 5;

  HomeReach() {
    home.tell_streams_apart(0);
    home.hold_streams_apart(true);
    home.note_pool(kPooled, kPool);
  }
  // Pages, as somebody's memory that is freed in that epoch.
  void own(PageRange pages, Owner owner, Epoch epoch) {
    if (!home.is_present(pages.first)) home.add_pages(pages, kAnyone, kNeverUsed);
    home.free(take(pages), owner, epoch);
    home.validate();
  }
  BlockId take(PageRange pages) {
    const UnitRange range{pages.first * kPage, pages.count * kPage};
    const BlockId block = home.carve(home.hole_at(range.begin), range, BlockState::live);
    home.validate();
    return block;
  }

  BlockTable blocks;
  Home home{blocks, kPage, 8};
};

// A place that a program had before may be a pool's hole by now.
TEST_F(HomeReach, APoolsHoleIsNotForOthers) {
  own({0, 2}, kPooled, 4);
  own({2, 2}, kTwo, 4);
  const UnitRange pooled{kPage / 2, kPage};
  const UnitRange others{2 * kPage + kPage / 2, kPage};
  EXPECT_TRUE(home.is_free(others, {kOne, 4}));
  EXPECT_FALSE(home.is_free(others, {kOne, 3}));
  EXPECT_FALSE(home.is_free(pooled, {kOne, 9}));
  EXPECT_FALSE(home.is_free(PageId{0}, {kOne, 9}));
  const Reach of_pool(4, 9, 6, kPool);
  EXPECT_TRUE(home.is_free(pooled, of_pool));
  EXPECT_FALSE(home.is_free(others, of_pool));
  Reach both = of_pool;
  both.others_pool_too = 0;
  EXPECT_TRUE(home.is_free(others, both));
}

// Of two streams' holes that meet inside a page, each is found where it begins.
//
//   page 0    0 to 6: stream 1's    6 to 12: stream 2's    12 to 16: in use
TEST_F(HomeReach, HolesThatMeetInAPageAreToldApart) {
  home.add_pages({0, 1}, kAnyone, kNeverUsed);
  const auto carve = [&](Unit begin, Unit size) {
    return home.carve(home.hole_at(begin), {begin, size}, BlockState::live);
  };
  const BlockId lower = carve(0, 6);
  const BlockId upper = carve(6, 6);
  carve(12, 4);
  home.free(lower, kOne, 5);
  home.free(upper, kTwo, 7);
  home.validate();
  EXPECT_TRUE(home.is_free({6, 6}, {kTwo, 1}));
  EXPECT_FALSE(home.is_free({6, 6}, {kOne, 6}));
  EXPECT_TRUE(home.is_free({0, 6}, {kOne, 1}));
  EXPECT_FALSE(home.is_free({0, 7}, {kOne, 9}));
}

// New memory comes between two holes, the one above freed later.
//
//   page    0         1          2
//   owner   1, ep. 5  (absent)   1, ep. 9
TEST_F(HomeReach, AHoleIsAsYoungAsItsYoungestPart) {
  home.add_pages({0, 3}, kAnyone, kNeverUsed);
  const BlockId first = take({0, 1});
  const BlockId last = take({2, 1});
  home.remove_pages({1, 1});
  home.free(first, kOne, 5);
  home.free(last, kOne, 9);
  home.add_pages({1, 1}, kOne, kNeverUsed);
  home.validate();
  EXPECT_EQ(home.holes().current, 1);
  EXPECT_EQ(home.fit_among_others(3 * kPage, {kTwo, 5}).hole, 0U);
  EXPECT_NE(home.fit_among_others(3 * kPage, {kTwo, 9}).hole, 0U);
  EXPECT_FALSE(home.is_free({2 * kPage, kPage}, {kTwo, 8}));
}

}  // namespace
}  // namespace gapless
