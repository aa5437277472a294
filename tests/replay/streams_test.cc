// The promises for programs with several streams, on the virtual clock (bench/streams).
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "bench/streams/run.h"

namespace gapless::bench {
namespace {

class StreamPrograms : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static StreamRunResult run(const std::string& allocator, double headroom = -1) {
    const StreamProgram program = stream_program(GetParam(), {.iterations = 24});
    StreamRunOptions options;
    options.costs = simgpu::load_cost_profile("a100");
    if (headroom >= 0) {
      const auto peak = static_cast<double>(program.peak_live_bytes());
      options.capacity_bytes =
          align_up(static_cast<std::uint64_t>(peak * (1 + headroom / 100)), 2 * MiB);
    }
    return run_streams(program, allocator, options);
  }
  // Time lost at most, in percent: what the design's own simulation of policies lost at a budget
  // of 5 % (offloading 14, ten streams 13 and 4, serving 27), or less; 6 where it lost nothing,
  // since less is reserved here.
  [[nodiscard]] static double allowed_percent() {
    const std::string name = GetParam();
    if (name.starts_with("offload-10-1")) return 13;
    if (name.starts_with("offload-10")) return 4;
    if (name.starts_with("offload-sync")) return 3;
    if (name.starts_with("offload")) return 5;
    if (name == "serve-4") return 15;
    // Windows that only spare waits are bounded (docs/placement.md).
    if (name == "fsdp-limited") return 9;
    return 6;
  }
};

TEST_P(StreamPrograms, ReservedStaysNearLiveAndLittleTimeIsLost) {
  const StreamRunResult result = run("gapless");
  ASSERT_TRUE(result.fits);
  EXPECT_TRUE(result.violations.empty()) << result.violations.front();
  EXPECT_LE(result.overhead_percent(), 5);
  EXPECT_LE(result.lost_percent(), allowed_percent());
  EXPECT_EQ(result.calls.host_syncs(), 0U);
  // In twenty iterations, of which the deepest offloading makes the most.
  EXPECT_LE(result.calls.of(DriverCall::mem_map), 10 * result.peak_reserved_bytes / (2 * MiB));
}

TEST_P(StreamPrograms, CompletesWithTwoPercentToSpare) {
  const StreamRunResult result = run("gapless", 2);
  EXPECT_TRUE(result.fits);
  EXPECT_TRUE(result.violations.empty()) << result.violations.front();
  EXPECT_EQ(result.calls.host_syncs(), 0U);
  EXPECT_LE(result.lost_percent(), allowed_percent() + 2);
}

TEST_P(StreamPrograms, TheNativeModelNeedsMore) {
  const StreamRunResult native = run("native");
  EXPECT_TRUE(native.violations.empty()) << native.violations.front();
  const bool ordered = GetParam() == std::string("fsdp-ordered");  // as the native one needs it
  EXPECT_GE(native.overhead_percent(), run("gapless").overhead_percent() + (ordered ? 1 : 20));
}

INSTANTIATE_TEST_SUITE_P(Programs, StreamPrograms, ::testing::ValuesIn(stream_program_names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(StreamProgram, UnknownNamesAreRefused) {
  EXPECT_THROW((void)stream_program("offload-1-9", {}), std::invalid_argument);
}

}  // namespace
}  // namespace gapless::bench
