// Whether the steps of a training differ in what they take.
#include "simgpu/process/step_peaks.h"

#include <initializer_list>

#include <gtest/gtest.h>

namespace gapless::simgpu {
namespace {

// Steps with those peaks, beside 10 that stay.
StepPeaks after(std::initializer_list<std::uint64_t> peaks) {
  StepPeaks told;
  for (const std::uint64_t peak : peaks) {
    told.note(10 + peak);
    told.note(10);
    told.step();
  }
  return told;
}

TEST(StepPeaksTest, DifferWhereTheMostCameOnce) {
  const StepPeaks told = after({90, 80, 11, 20, 14, 9});
  EXPECT_TRUE(told.differ());
  EXPECT_EQ(told.steps, 4U);  // not the first two, which were larger
  EXPECT_EQ(told.least_bytes, 19U);
  EXPECT_EQ(told.most_bytes, 30U);
}

TEST(StepPeaksTest, AreAlikeOrComeAgain) {
  EXPECT_FALSE(after({20, 20, 20, 20, 20}).differ());
  EXPECT_FALSE(after({20, 10, 20, 10, 20, 10}).differ());
  EXPECT_EQ(after({20, 10, 20, 10, 20, 10}).times_most, 2U);
}

TEST(StepPeaksTest, OfTwoNothingFollows) {
  EXPECT_FALSE(after({20, 10, 15, 20}).differ());
  EXPECT_TRUE(after({20, 10, 15, 20, 10}).differ());
}

// What is allocated as a step ends is in the next one's peak as well.
TEST(StepPeaksTest, BeginWithWhatIsThere) {
  StepPeaks told;
  told.note(50);
  for (int i = 0; i < 5; ++i) told.step();
  EXPECT_EQ(told.steps, 3U);
  EXPECT_EQ(told.least_bytes, 50U);
}

}  // namespace
}  // namespace gapless::simgpu
