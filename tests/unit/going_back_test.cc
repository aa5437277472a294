// Segments undone event by event, as PyTorch's viewer does.
#include "allocator/trace/going_back.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;

TEST(GoingBackTest, WhatOneSegmentHoldsIsOnePiece) {
  GoingBack back;
  back.add({0, 10}, 0);
  EXPECT_THAT(back.undo_map({2, 4}), ElementsAre(FieldsAre(2, 4)));
  EXPECT_THAT(back.undo_map({6, 4}), ElementsAre(FieldsAre(6, 4)));  // what is left on both sides
  EXPECT_THAT(back.undo_map({0, 2}), ElementsAre(FieldsAre(0, 2)));
}

TEST(GoingBackTest, WhatSeveralSegmentsHoldIsSeveralPieces) {
  GoingBack back;
  back.add({0, 4}, 0);
  back.add({4, 2}, 0);  // a private pool's
  back.add({6, 6}, 0);
  EXPECT_THAT(back.undo_map({1, 9}),
              ElementsAre(FieldsAre(1, 3), FieldsAre(4, 2), FieldsAre(6, 4)));
  EXPECT_THAT(back.undo_map({0, 1}), ElementsAre(FieldsAre(0, 1)));
  EXPECT_THAT(back.undo_map({10, 2}), ElementsAre(FieldsAre(10, 2)));
}

TEST(GoingBackTest, WhatComesBackJoinsNeighboursOfItsStream) {
  GoingBack back;
  back.add({0, 4}, 1);
  back.add({6, 4}, 1);
  back.undo_unmap({4, 2}, 1);
  EXPECT_THAT(back.undo_map({0, 10}), ElementsAre(FieldsAre(0, 10)));
  back.add({0, 4}, 1);
  back.add({6, 4}, 2);
  back.undo_unmap({4, 2}, 1);
  EXPECT_THAT(back.undo_map({0, 10}), ElementsAre(FieldsAre(0, 6), FieldsAre(6, 4)));
}

TEST(GoingBackTest, WhatIsNotThereAsAWholeIsLeftAsItIs) {
  GoingBack back;
  back.add({0, 4}, 0);
  EXPECT_THAT(back.undo_map({2, 4}), ElementsAre(FieldsAre(2, 4)));
  EXPECT_THAT(back.undo_map({100, 4}), ElementsAre(FieldsAre(100, 4)));
  EXPECT_THAT(back.undo_map({0, 0}), ElementsAre(FieldsAre(0, 0)));
  back.add({0, 4}, 0);
  back.undo_unmap({2, 4}, 0);  // contradicts it
  EXPECT_THAT(back.undo_map({0, 6}), ElementsAre(FieldsAre(0, 6)));
}

}  // namespace
}  // namespace gapless
