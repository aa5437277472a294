#include "simgpu/process/known_ranges.h"

#include <random>

#include <gtest/gtest.h>

namespace gapless::simgpu {
namespace {

TEST(KnownRanges, KnowsOnlyWhatItWasTold) {
  KnownRanges ranges;
  EXPECT_EQ(ranges.least(100, 1), Knowledge::none);
  EXPECT_EQ(ranges.least(100, 0), Knowledge::known);
  ranges.set(100, 50, Knowledge::known);
  ranges.set(150, 50, Knowledge::likely);
  EXPECT_EQ(ranges.least(100, 50), Knowledge::known);
  EXPECT_EQ(ranges.least(100, 51), Knowledge::likely);
  EXPECT_EQ(ranges.least(100, 101), Knowledge::none);
  EXPECT_EQ(ranges.least(99, 10), Knowledge::none);
  EXPECT_TRUE(ranges.any(99, 2));
  EXPECT_FALSE(ranges.any(99, 1));
  EXPECT_FALSE(ranges.any(200, 1));
  EXPECT_EQ(ranges.stretch(100), 100U);
  EXPECT_EQ(ranges.stretch(160), 40U);
  EXPECT_EQ(ranges.stretch(99), 0U);
  EXPECT_EQ(ranges.first(), 100U);
}

TEST(KnownRanges, AgreesWithOneByteAtATime) {
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same every time
  constexpr std::uint64_t kBytes = 64;
  KnownRanges ranges;
  std::vector<Knowledge> bytes(kBytes, Knowledge::none);
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t begin = random() % kBytes;
    const std::uint64_t count = random() % (kBytes - begin + 1);
    if (random() % 4 == 0) {
      const std::uint64_t from = random() % (kBytes - count + 1);
      ranges.copy(begin, from, count);
      const std::vector<Knowledge> before = bytes;
      for (std::uint64_t i = 0; i < count; ++i) bytes[begin + i] = before[from + i];
    } else {
      const auto knowledge = static_cast<Knowledge>(random() % 3);
      ranges.set(begin, count, knowledge);
      for (std::uint64_t i = 0; i < count; ++i) bytes[begin + i] = knowledge;
    }
    const std::uint64_t asked = random() % kBytes;
    const std::uint64_t length = random() % (kBytes - asked + 1);
    Knowledge least = Knowledge::known;
    bool any = false;
    for (std::uint64_t i = asked; i < asked + length; ++i) {
      least = std::min(least, bytes[i]);
      any = any || bytes[i] != Knowledge::none;
    }
    ASSERT_EQ(ranges.least(asked, length), least) << step;
    ASSERT_EQ(ranges.any(asked, length), any) << step;
  }
}

}  // namespace
}  // namespace gapless::simgpu
