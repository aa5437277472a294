// When a program is told to be waiting for a number that nobody knows.
#include "tools/standstill.h"

#include <gtest/gtest.h>

namespace gapless::tools {
namespace {

using std::chrono::seconds;

const Standstill::Clock::time_point kBegin{};

TEST(Standstill, IsToldOnceOfALoopThatReadsAndDoesNothingElse) {
  Standstill standstill(kBegin);
  EXPECT_FALSE(standstill.look({0, 500, 100}, kBegin + seconds(5)));
  EXPECT_FALSE(standstill.look({0, 500, 9000}, kBegin + seconds(30)));
  EXPECT_EQ(standstill.look({0, 500, 12'100}, kBegin + seconds(36)), 12'000U);
  EXPECT_FALSE(standstill.look({0, 500, 90'000}, kBegin + seconds(90)));
}

TEST(Standstill, IsNotToldOfOneThatGoesOn) {
  Standstill standstill(kBegin);
  for (unsigned i = 1; i < 20; ++i) {
    EXPECT_FALSE(standstill.look({i, 500, i * 5000U}, kBegin + i * seconds(20)));      // steps
    EXPECT_FALSE(standstill.look({i, 500 + i, i * 5000U}, kBegin + i * seconds(20)));  // memory
  }
}

TEST(Standstill, IsNotToldOfOneThatReadsLittle) {
  Standstill standstill(kBegin);
  EXPECT_FALSE(standstill.look({1, 500, 100}, kBegin + seconds(5)));
  EXPECT_FALSE(standstill.look({1, 500, 300}, kBegin + seconds(500)));
}

}  // namespace
}  // namespace gapless::tools
