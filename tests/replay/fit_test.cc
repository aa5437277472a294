// One meaning of "fits": what `least_capacity` says completes, completes, whoever replays it.
#include "bench/replay/fit.h"

#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/trace/load.h"
#include "tests/support/recording.h"

namespace gapless::bench {
namespace {

using testing::Recording;

Trace trace_of(const std::string& path) { return load_traces(path).front(); }

bool completes(const Trace& trace, const std::string& allocator, std::uint64_t capacity_bytes) {
  return replay(trace, allocator, {.capacity_bytes = capacity_bytes, .time_operations = false})
      .fits;
}

class EveryAllocator : public ::testing::TestWithParam<const char*> {};

// The run completes with what is said, as a replay does it, and with what somebody may have more.
TEST_P(EveryAllocator, SaysWhatAReplayShows) {
  for (const char* file :
       {GAPLESS_TRACES "/tiny.gtrace", GAPLESS_TRACES "/lm-small-train.gtrace",
        GAPLESS_TRACES "/lm-medium-train-ctx128.gtrace", GAPLESS_TEST_TRACES "/gan.gtrace"}) {
    const Trace trace = trace_of(file);
    const Fit fit = least_capacity(trace, GetParam(), {}).value();
    const std::uint64_t least = fit.least_bytes;
    EXPECT_FALSE(completes(trace, GetParam(), least - 2 * MiB)) << file;
    EXPECT_TRUE(completes(trace, GetParam(), fit.lowest_bytes)) << file;
    EXPECT_LE(fit.lowest_bytes, least) << file;
    for (const std::uint64_t more :
         {std::uint64_t{0}, 2 * MiB, 4 * MiB, least / 100, least / 20, least / 2, 80 * GiB}) {
      EXPECT_TRUE(completes(trace, GetParam(), least + more)) << file << " +" << more / MiB;
    }
  }
}

TEST_P(EveryAllocator, LeavesOutOnlyPassesThatGoAsTheOneBefore) {
  const Trace trace = trace_of(GAPLESS_TEST_TRACES "/gan.gtrace");
  const std::uint64_t live = align_up(peak_live_bytes(trace), 2 * MiB);
  for (std::uint64_t capacity = live; capacity < live + 300 * MiB; capacity += 14 * MiB) {
    ReplayOptions options{.passes = 6, .capacity_bytes = capacity, .time_operations = false};
    const ReplayResult all = replay(trace, GetParam(), options);
    options.stop_when_steady = true;
    const ReplayResult some = replay(trace, GetParam(), options);
    EXPECT_EQ(some.fits, all.fits) << capacity / MiB;
    EXPECT_EQ(some.failed_pass, all.failed_pass) << capacity / MiB;
    EXPECT_EQ(some.peak_reserved_bytes, all.peak_reserved_bytes) << capacity / MiB;
  }
}

TEST_P(EveryAllocator, NeedsAllThatIsLiveAtOnce) {
  Recording run("three");
  run.alloc(64 * MiB);
  run.alloc(64 * MiB);
  run.free(run.alloc(128 * MiB));
  const Fit fit = least_capacity(run.trace(), GetParam(), {}).value();
  EXPECT_GE(fit.least_bytes, 256 * MiB);
  EXPECT_LE(fit.least_bytes, 280 * MiB);
}

TEST_P(EveryAllocator, SaysNothingOfWhatNoGpuHas) {
  Recording run("vast");
  run.alloc(kLargestGpuBytes + 1);
  EXPECT_FALSE(least_capacity(run.trace(), GetParam(), {}));
}

INSTANTIATE_TEST_SUITE_P(Allocators, EveryAllocator,
                         ::testing::Values("gapless", "native", "expandable"));

// With one pass native seems to need 14.84 GiB for this run, and does not complete four on 16 GiB.
TEST(Fit, IsOfAsManyPassesAsAReplay) {
  const Trace trace = trace_of(GAPLESS_TRACES "/qwen-lora-varlen.gtrace");
  ASSERT_FALSE(completes(trace, "native", 16 * GiB));
  const std::uint64_t least = least_capacity(trace, "native", {}).value().least_bytes;
  EXPECT_GT(least, 16 * GiB);
  EXPECT_TRUE(completes(trace, "native", least));
  EXPECT_TRUE(completes(trace, "native", 17 * GiB));
}

// A bisection ends at 766 MiB here; with 784 the run fails again.
TEST(Fit, LiesAboveLargerCapacitiesThatFail) {
  const Trace trace = trace_of(GAPLESS_TEST_TRACES "/gan.gtrace");
  const Fit fit = least_capacity(trace, "expandable", {}).value();
  EXPECT_LT(fit.lowest_bytes, fit.least_bytes);
  EXPECT_TRUE(completes(trace, "expandable", fit.lowest_bytes));
  EXPECT_FALSE(completes(trace, "expandable", fit.least_bytes - 2 * MiB));
  for (std::uint64_t more = 0; more < 64 * MiB; more += 2 * MiB) {
    EXPECT_TRUE(completes(trace, "expandable", fit.least_bytes + more)) << more / MiB;
  }
}

TEST(Fit, WhatDidNotCompleteHasNoOverhead) {
  const Trace trace = trace_of(GAPLESS_TRACES "/tiny.gtrace");
  const ReplayResult failed = replay(trace, "native", {.capacity_bytes = 3300 * MiB});
  EXPECT_FALSE(failed.fits);
  EXPECT_EQ(failed.failed_pass, 1);
  EXPECT_FALSE(failed.overhead_percent());
  EXPECT_TRUE(replay(trace, "native", {}).overhead_percent());
}

}  // namespace
}  // namespace gapless::bench
