// A run that finds what an earlier one left, and takes little, is no answer.
#include "tools/left_behind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

FitsRun run_of(const json& steps, std::uint64_t allocated_mib, const json& fits = true) {
  FitsRun run;
  run.rows.push_back({{"pid", 7},
                      {"device", 0},
                      {"steps", steps},
                      {"fits", fits},
                      {"verdict", fits == true ? "yes" : "no"},
                      {"reason", nullptr},
                      {"peak_allocated_bytes", allocated_mib * MiB},
                      {"peak_used_bytes", allocated_mib * MiB},
                      {"total_bytes", 1000 * MiB}});
  run.installed = {0};
  add_headroom(run);
  return run;
}

json fits_after(std::initializer_list<FitsRun> earlier, FitsRun run) {
  StepsBefore before;
  for (FitsRun each : earlier) before.judge(each);
  before.judge(run);
  return run.rows[0]["fits"];
}

TEST(LeftBehind, ARunWithoutStepsIsNotKnownAfterOneThatMadeSome) {
  StepsBefore before;
  FitsRun first = run_of(1200, 800);
  before.judge(first);
  EXPECT_EQ(first.rows[0]["fits"], true);
  FitsRun resumed = run_of(0, 100);
  before.judge(resumed);
  EXPECT_TRUE(resumed.rows[0]["fits"].is_null());
  EXPECT_TRUE(resumed.rows[0]["headroom_bytes"].is_null());
  EXPECT_THAT(resumed.rows[0]["reason"].get<std::string>(),
              HasSubstr("no optimizer took a step, and in an earlier run one took 1,200"));
}

TEST(LeftBehind, StepsOfAnyRunBeforeCount) {
  EXPECT_TRUE(fits_after({run_of(3, 800), run_of(0, 100)}, run_of(0, 100)).is_null());
  EXPECT_TRUE(
      fits_after({run_of(3, 800, false)}, run_of(0, 100)).is_null());  // refused in the fourth
}

TEST(LeftBehind, WhatMakesStepsOrNeverMadeAnyStands) {
  EXPECT_EQ(fits_after({run_of(5, 800)}, run_of(1, 800)), true);
  EXPECT_EQ(fits_after({run_of(0, 800)}, run_of(0, 800)), true);
  EXPECT_EQ(fits_after({run_of(nullptr, 800)}, run_of(nullptr, 800)), true);
  EXPECT_EQ(fits_after({run_of(5, 100)}, run_of(0, 800, false)), false);
  FitsRun ranks = run_of(0, 800);  // one rank of two has the optimizer
  ranks.rows.push_back(run_of(5, 800).rows[0]);
  ranks.installed = {0, 0};
  EXPECT_EQ(fits_after({run_of(5, 800)}, ranks), true);
}

TEST(LeftBehind, LessIsLessThanByChance) {
  EXPECT_TRUE(takes_less_than(run_of(5, 800), run_of(5, 700)));
  EXPECT_FALSE(takes_less_than(run_of(5, 800), run_of(5, 799)));
  EXPECT_FALSE(takes_less_than(run_of(5, 800), run_of(5, 900)));
}

}  // namespace
}  // namespace gapless::tools
