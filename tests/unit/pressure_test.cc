// What happens when memory runs out: callbacks, observers, and the report of why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/report/out_of_memory.h"
#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Pressure : public ::testing::Test {
 protected:
  void start(std::uint64_t capacity, const std::string& settings = "slack:0") {
    gpu = std::make_unique<simgpu::SimDriver>(
        simgpu::SimOptions{.devices = {{.total_bytes = capacity}}});
    DeviceProperties properties;
    gpu->device_properties(0, properties);
    std::vector<std::string> warnings;
    allocator =
        std::make_unique<DeviceAllocator>(*gpu, 0, properties, parse_options(settings, warnings));
  }
  DeviceAddress alloc(std::uint64_t bytes) {
    DeviceAddress address = 0;
    EXPECT_EQ(allocator->alloc(bytes, 0, address), Status::ok) << allocator->last_failure();
    return address;
  }
  OutOfMemoryReport why() {
    MemInfo info;
    gpu->mem_info(0, info);
    return explain(allocator->report(), allocator->last_failed_request(), info.free_bytes);
  }

  std::unique_ptr<simgpu::SimDriver> gpu;
  std::unique_ptr<DeviceAllocator> allocator;
};

TEST_F(Pressure, CallbacksMayFreeMemory) {
  start(8 * MiB);
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
  start(32 * MiB, "slack:0,limit:24MiB");
  StreamHandle side = 0;
  gpu->stream_create(0, side);
  const DeviceAddress a = alloc(10 * MiB);
  const DeviceAddress small = alloc(300000);
  DeviceAddress b = 0;
  ASSERT_EQ(allocator->alloc(5 * MiB, side, b), Status::ok);
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
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("asked for 8.00 MiB on stream 0x"));
  EXPECT_THAT(text, HasSubstr("in 3 blocks"));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["asked_bytes"], 8 * MiB);
  EXPECT_EQ(json["free_in_pools"][0]["bytes"], 4 * MiB);
  EXPECT_EQ(json["advice"].size(), report.advice.size());
  // What it says would help does.
  allocator->set_limit_bytes(report.limit_bytes + report.missing_bytes);
  EXPECT_EQ(allocator->alloc(8 * MiB, side, b), Status::ok);
  (void)a;
  (void)small;
}

TEST_F(Pressure, OthersOnTheDeviceAreSeen) {
  start(16 * MiB);
  DeviceAddress other = 0;
  gpu->mem_alloc(0, 10 * MiB, other);
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(8 * MiB, 0, none), Status::out_of_memory);
  const OutOfMemoryReport report = why();
  EXPECT_EQ(report.elsewhere_bytes, 10 * MiB);
  EXPECT_EQ(report.missing_bytes, 2 * MiB);
  EXPECT_THAT(report.advice.front(), HasSubstr("free 2.00 MiB of the 10.00 MiB that others hold"));
}

}  // namespace
}  // namespace gapless
