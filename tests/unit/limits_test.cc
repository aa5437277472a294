// How much is reserved at most, and how much is kept: limit, headroom, trim.
#include "tests/support/on_device.h"

namespace gapless {
namespace {

class Limits : public testing::OnDevice {};

// A pool's own allocator has its memory back when that may be waited for; until then it counts.
TEST_F(Limits, CountWhatIsNotBackWithItsSourceYet) {
  constexpr PoolId kPool{0, 1};
  constexpr PoolId kGraph{1, 0};
  start({.capacity = 64 * MiB, .settings = "limit:16MiB"});
  std::uint64_t given_bytes = 0;
  const PoolSource source{[&](std::uint64_t bytes) {
                            DeviceAddress address = 0;
                            if (gpu->mem_alloc(0, bytes, address) == DriverStatus::ok)
                              given_bytes += bytes;
                            return address;
                          },
                          [&](DeviceAddress address, std::uint64_t bytes) {
                            given_bytes -= bytes;
                            gpu->mem_free(0, address);
                          }};
  EXPECT_EQ(allocator->retain_pool(kPool), Status::ok);
  EXPECT_EQ(allocator->set_pool_source(kPool, source), Status::ok);
  begin(kPool);
  const DeviceAddress own = alloc(8 * MiB);
  end(kPool);
  begin(kGraph, {side});
  gpu->begin_capture(0, side);
  free(alloc(512, side));
  free(own);
  release(kPool);
  release(kPool);
  EXPECT_EQ(given_bytes, 8 * MiB);
  EXPECT_EQ(reserved(), 10 * MiB);
  EXPECT_EQ(try_alloc(8 * MiB, third), Status::out_of_memory);
  const DeviceAddress other = alloc(6 * MiB, third);
  (void)gpu->end_capture(side);
  end(kGraph);
  release(kGraph);
  EXPECT_EQ(allocator->trim(16 * MiB), Status::ok);
  EXPECT_EQ(given_bytes, 0U);
  EXPECT_EQ(reserved(), 8 * MiB);
  free(other);
}

// Before the headroom is touched the program is asked to free memory, each time.
TEST_F(Limits, TheHeadroomIsKeptAgainAfterALastResort) {
  start({.capacity = 64 * MiB, .settings = "headroom:16MiB"});
  int asked = 0;
  allocator->add_free_memory_callback([&] {
    ++asked;
    return false;
  });
  const DeviceAddress a = alloc(40 * MiB);
  EXPECT_EQ(asked, 0);
  for (int times = 1; times <= 2; ++times) {
    const DeviceAddress b = alloc(20 * MiB);
    EXPECT_EQ(asked, times);
    free(b);
    EXPECT_EQ(allocator->trim(40 * MiB), Status::ok);
    EXPECT_EQ(reserved(), 40 * MiB);
  }
  free(a);
}

TEST_F(Limits, TrimKeepsNoMoreThanItIsTold) {
  for (const std::uint64_t keep : {8 * MiB, 7 * MiB, 6 * MiB + 1, 5 * MiB, std::uint64_t{1}}) {
    start({.capacity = 64 * MiB});
    free(alloc(16 * MiB));
    EXPECT_EQ(allocator->trim(keep), Status::ok);
    EXPECT_EQ(reserved(), align_down(keep, 2 * MiB));  // as much of it as whole pages can be
    EXPECT_EQ(gpu->used_bytes(0), reserved());
    testing::OnDevice::TearDown();
  }
}

}  // namespace
}  // namespace gapless
