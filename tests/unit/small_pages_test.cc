// Small blocks lie beside small blocks, so that few pages are kept by them.
#include "allocator/heap/small_pages.h"

#include <gtest/gtest.h>

#include "allocator/heap/placement.h"

namespace gapless {
namespace {

// Pages of 16 units, so that up to 4 units are small.
//
//   page    0                    1                          2
//   blocks  | live 12 | hole 4  | live 8 | live 2 | hole 6 | live 16 | absent ...
class SmallPagesTest : public ::testing::Test {
 protected:
  static constexpr Owner kOne = 1;

  SmallPagesTest() {
    home.add_pages({0, 3}, kOne, 1);
    make(0, 12);
    make(16, 8);
    small = make(24, 2);
    last = make(32, 16);
  }
  BlockId make(Unit begin, Unit size) {
    const BlockId block = home.carve(home.hole_at(begin), {begin, size}, BlockState::live);
    placement.note_made(block);
    placement.validate();
    return block;
  }
  void drop(BlockId block) {
    placement.note_freed(block);
    home.free(block, kOne, 1);
    placement.validate();
  }
  [[nodiscard]] Unit place_of(Unit size) const { return placement.fit(size, kOne).begin; }

  BlockTable blocks;
  Home home{blocks, 16, 8};
  Placement placement{home, blocks};
  BlockId small = 0;
  BlockId last = 0;
};

TEST_F(SmallPagesTest, ASmallRequestGoesToAPageThatHasOne) {
  EXPECT_EQ(place_of(4), 26U);
  EXPECT_EQ(place_of(1), 26U);
  EXPECT_EQ(placement.fit_where(4, kOne, [](const Fit&) { return true; }).begin, 26U);
}

TEST_F(SmallPagesTest, OthersGoWhereTheyFitBest) {
  drop(last);
  make(26, 6);
  EXPECT_EQ(place_of(5), 32U);
}

TEST_F(SmallPagesTest, WithoutOneItGoesWhereItFitsBest) {
  drop(small);
  EXPECT_EQ(place_of(4), 12U);
  EXPECT_EQ(placement.fit_where(4, kOne, [](const Fit&) { return true; }).begin, 12U);
}

TEST_F(SmallPagesTest, APlaceThatIsNotGoodIsNotTaken) {
  EXPECT_EQ(placement.fit_where(4, kOne, [](const Fit& fit) { return fit.begin != 26; }).begin,
            12U);
}

TEST_F(SmallPagesTest, ABlockAcrossTwoPagesIsInBoth) {
  drop(last);
  const BlockId across = make(30, 4);
  drop(small);
  EXPECT_EQ(place_of(4), 24U);  // where it begins, though the hole at 12 is of the very size
  make(24, 6);
  EXPECT_EQ(place_of(4), 34U);  // and where it ends
  drop(across);
  EXPECT_EQ(place_of(4), 12U);
}

TEST_F(SmallPagesTest, NoHoleNoPlace) {
  make(12, 4);
  make(26, 6);
  EXPECT_EQ(placement.fit(1, kOne).hole, 0U);
}

}  // namespace
}  // namespace gapless
