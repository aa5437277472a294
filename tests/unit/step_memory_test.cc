// What the steps of a training take: whether it grows, and whether they differ.
#include "simgpu/process/step_memory.h"

#include <initializer_list>

#include <gtest/gtest.h>

namespace gapless::simgpu {
namespace {

// Steps with those peaks, beside 10 that stay.
StepMemory run_of(std::initializer_list<std::uint64_t> peaks) {
  StepMemory told;
  for (const std::uint64_t peak : peaks) {
    told.note(10 + peak);
    told.note(10);
    told.step();
  }
  return told;
}

StepPeaks after(std::initializer_list<std::uint64_t> peaks) { return run_of(peaks).peaks; }

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
  StepMemory told;
  told.note(50);
  for (int i = 0; i < 5; ++i) told.step();
  EXPECT_EQ(told.peaks.steps, 3U);
  EXPECT_EQ(told.peaks.least_bytes, 50U);
}

TEST(StepGrowthTest, IsOfTheLeastAndNotOfThePeaks) {
  const StepMemory alike = run_of({20, 30, 40, 50, 60, 70, 80, 90});
  EXPECT_EQ(alike.growth.grown_bytes, 0U);
  EXPECT_EQ(alike.growth.steps, 6U);
  EXPECT_FALSE(alike.growth.is_steady());
}

TEST(StepGrowthTest, IsSteadyAfterFiveRisesUntilItFalls) {
  StepMemory told;
  for (std::uint64_t step = 1; step <= 7; ++step) {
    told.note(100 * step);
    told.step();
    EXPECT_EQ(told.growth.is_steady(), step == 7) << step;
  }
  EXPECT_EQ(told.growth.grown_bytes, 500U);
  told.note(50);
  told.step();
  EXPECT_EQ(told.growth.steps, 0U);
}

}  // namespace
}  // namespace gapless::simgpu
