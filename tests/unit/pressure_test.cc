// What happens when memory runs out: callbacks, observers, and the report of why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/report/out_of_memory.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Pressure : public testing::OnDevice {
 protected:
  OutOfMemoryReport why() {
    MemInfo info;
    gpu->mem_info(0, info);
    return explain(allocator->report(), allocator->last_failed_request(), info.free_bytes);
  }
};

TEST_F(Pressure, CallbacksMayFreeMemory) {
  start({.capacity = 8 * MiB});
  std::vector<DeviceAddress> cache = {alloc(4 * MiB), alloc(4 * MiB)};
  int called = 0;
  allocator->add_free_memory_callback([&] {
    ++called;
    if (cache.empty()) return false;
    EXPECT_EQ(allocator->free(cache.back()), Status::ok);  // no lock is held
    cache.pop_back();
    return true;
  });
  int observed = 0;
  allocator->add_out_of_memory_observer([&](const FailedRequest& failed) {
    ++observed;
    EXPECT_EQ(failed.bytes, 16 * MiB);
  });
  const DeviceAddress a = alloc(3 * MiB);
  EXPECT_EQ(called, 1);
  EXPECT_EQ(observed, 0);
  EXPECT_EQ(allocator->statistics().num_ooms, 0);
  DeviceAddress none = 7;
  EXPECT_EQ(allocator->alloc(16 * MiB, 0, none), Status::out_of_memory);
  EXPECT_EQ(none, 7U);
  EXPECT_EQ(called, 2);
  EXPECT_EQ(observed, 1);
  EXPECT_EQ(allocator->statistics().num_ooms, 1);
  allocator->free(a);
}

TEST_F(Pressure, TheReportSaysWhatIsLiveAndWhatIsMissing) {
  start({.capacity = 32 * MiB, .settings = "limit:24MiB"});
  const DeviceAddress a = alloc(10 * MiB);
  const DeviceAddress small = alloc(300000);
  const DeviceAddress b = alloc(5 * MiB, side);
  allocator->begin_pool({0, 3}, [](StreamHandle) { return true; });
  const DeviceAddress pooled = alloc(4 * MiB);
  allocator->free(pooled);
  allocator->end_pool({0, 3});
  DeviceAddress none = 0;
  ASSERT_EQ(allocator->alloc(8 * MiB, side, none), Status::out_of_memory);
  const OutOfMemoryReport report = why();
  EXPECT_EQ(report.request.bytes, 8 * MiB);
  EXPECT_EQ(report.request.stream, side);
  EXPECT_EQ(report.live_blocks, 3U);
  EXPECT_EQ(report.live_bytes, 15 * MiB + 300032);
  EXPECT_EQ(report.by_size.front().name, "8.00 MiB to 16.00 MiB");
  EXPECT_EQ(report.by_size.front().bytes, 10 * MiB);
  EXPECT_EQ(report.by_stream.size(), 2U);
  ASSERT_EQ(report.free_in_pools.size(), 1U);
  EXPECT_EQ(report.free_in_pools[0].name, "pool {0, 3}");
  EXPECT_EQ(report.free_in_pools[0].bytes, 4 * MiB);
  EXPECT_GT(report.missing_bytes, 0U);
  EXPECT_LE(report.missing_bytes, 8 * MiB);
  EXPECT_THAT(report.advice.front(), HasSubstr("raise the limit of 24.00 MiB"));
  EXPECT_EQ(headline(report), "It is " + format_bytes(report.missing_bytes) +
                                  " short: raise the limit of 24.00 MiB by " +
                                  format_bytes(report.missing_bytes) + ".");
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("asked for 8.00 MiB on stream 0x"));
  EXPECT_THAT(text, HasSubstr("in 3 blocks"));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["asked_bytes"], 8 * MiB);
  EXPECT_EQ(json["free_in_pools"][0]["bytes"], 4 * MiB);
  EXPECT_EQ(json["advice"].size(), report.advice.size());
  // What it says would help does.
  allocator->set_limit_bytes(report.limit_bytes + report.missing_bytes);
  const DeviceAddress c = alloc(8 * MiB, side);
  for (const DeviceAddress address : {a, small, b, c}) free(address);
  release({0, 3});
}

TEST_F(Pressure, TheReportSaysWhatALargerRequestWouldMiss) {
  start({.capacity = 32 * MiB});
  const DeviceAddress a = alloc(28 * MiB);
  DeviceAddress none = 0;
  ASSERT_EQ(allocator->alloc(6 * MiB, 0, none), Status::out_of_memory);
  const auto with = [&](std::uint64_t bytes) {
    return explain(allocator->report(), allocator->last_failed_request(), 4 * MiB,
                   {bytes, "train.py:12 (loss)"});
  };
  EXPECT_EQ(with(9 * MiB).missing_bytes, 2 * MiB);
  EXPECT_EQ(with(9 * MiB).largest_missing_bytes, 6 * MiB);  // of whole pages
  EXPECT_THAT(to_text(with(9 * MiB)),
              HasSubstr("\nshort of: 2.00 MiB for this request, 6.00 MiB for the largest so far at "
                        "train.py:12 (loss), of 9.00 MiB\n"));
  EXPECT_THAT(with(9 * MiB).advice.back(),
              HasSubstr("keep 2.00 MiB (6.00 MiB for the largest such request) less alive"));
  const auto json = nlohmann::json::parse(to_json(with(9 * MiB)));
  EXPECT_EQ(json["largest_such"]["missing_bytes"], 6 * MiB);
  // One that is no larger says nothing.
  EXPECT_EQ(with(6 * MiB).largest.bytes, 0U);
  EXPECT_THAT(to_text(with(6 * MiB)), HasSubstr("\nshort of: 2.00 MiB for this request\n"));
  EXPECT_TRUE(nlohmann::json::parse(to_json(with(0)))["largest_such"].is_null());
  free(a);
}

TEST_F(Pressure, FreePagesAreGivenBackAboveTheSoftLimit) {
  start({.capacity = 64 * MiB, .settings = "soft_limit:16MiB"});
  const DeviceAddress a = alloc(8 * MiB);
  const DeviceAddress b = alloc(24 * MiB);
  EXPECT_EQ(reserved(), 32 * MiB);  // what is needed is had
  free(b);
  EXPECT_EQ(reserved(), 16 * MiB);
  EXPECT_EQ(gpu->used_bytes(0), 16 * MiB);
  const std::uint64_t waits = calls(DriverCall::device_synchronize);
  for (int i = 0; i < 10; ++i) free(alloc(8 * MiB));  // within the limit nobody waits
  EXPECT_EQ(calls(DriverCall::device_synchronize), waits);
  free(a);
}

// Where giving back does not help, it is not tried again with every free.
TEST_F(Pressure, ASoftLimitThatCannotBeKeptCostsLittle) {
  start({.capacity = 256 * MiB, .settings = "soft_limit:4MiB"});
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(alloc(MiB));
  const std::uint64_t before = calls(DriverCall::device_synchronize);
  for (int i = 0; i < 64; i += 2) free(blocks[i]);  // half of each page stays
  EXPECT_LE(calls(DriverCall::device_synchronize) - before, 4U);
  for (int i = 1; i < 64; i += 2) free(blocks[i]);
  EXPECT_LE(reserved(), 8 * MiB);
}

TEST_F(Pressure, HeadroomIsLeftToOthersWhileThatIsPossible) {
  start({.capacity = 32 * MiB, .settings = "headroom:8MiB"});
  const DeviceAddress a = alloc(16 * MiB);
  free(a);
  // Another process comes; ours takes what it has, and no more.
  DeviceAddress other = 0;
  gpu->mem_alloc(0, 4 * MiB, other);
  const DeviceAddress b = alloc(12 * MiB, side);
  EXPECT_EQ(gpu->used_bytes(0), 20 * MiB);
  const DeviceAddress c = alloc(8 * MiB);
  EXPECT_EQ(gpu->used_bytes(0), 24 * MiB);
  // A request that would fail otherwise has the headroom too.
  const DeviceAddress d = alloc(6 * MiB);
  EXPECT_EQ(gpu->used_bytes(0), 30 * MiB);
  for (const DeviceAddress address : {b, c, d}) free(address);
  gpu->mem_free(0, other);
}

TEST_F(Pressure, OthersOnTheDeviceAreSeen) {
  start({.capacity = 16 * MiB});
  DeviceAddress other = 0;
  gpu->mem_alloc(0, 10 * MiB, other);
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(8 * MiB, 0, none), Status::out_of_memory);
  const OutOfMemoryReport report = why();
  EXPECT_EQ(report.elsewhere_bytes, 10 * MiB);
  EXPECT_EQ(report.missing_bytes, 2 * MiB);
  EXPECT_THAT(report.advice.front(), HasSubstr("free 2.00 MiB of the 10.00 MiB that others hold"));
  gpu->mem_free(0, other);
}

}  // namespace
}  // namespace gapless
