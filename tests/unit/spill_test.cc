// Host memory where the device has none left.
#include "allocator/report/out_of_memory.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

class Spill : public testing::OnDevice {};

TEST_F(Spill, IsTheLastResortAndGivenBackFirst) {
  start({.capacity = 16 * MiB, .settings = "spill:8MiB", .host_bytes = 64 * MiB});
  const DeviceAddress a = alloc(12 * MiB);
  EXPECT_EQ(gpu->used_host_bytes(0), 0U);
  const DeviceAddress b = alloc(8 * MiB);  // two pages there are, two come from the host
  EXPECT_EQ(gpu->used_bytes(0), 16 * MiB);
  EXPECT_EQ(gpu->used_host_bytes(0), 4 * MiB);
  EXPECT_EQ(reserved(), 16 * MiB);
  SpillReport spill = allocator->spill();
  EXPECT_EQ(spill.bytes, 4 * MiB);
  EXPECT_EQ(spill.live_bytes, 4 * MiB);
  EXPECT_GT(spill.since.count(), 0);
  const DeviceAddress c = alloc(4 * MiB);
  EXPECT_EQ(gpu->used_host_bytes(0), 8 * MiB);
  EXPECT_EQ(try_alloc(2 * MiB), Status::out_of_memory);  // no more is allowed
  free(a);
  const DeviceAddress d = alloc(12 * MiB);  // the device's own first
  EXPECT_EQ(d, a);
  free(b);
  spill = allocator->spill();
  EXPECT_EQ(spill.live_bytes, 4 * MiB);
  EXPECT_EQ(spill.peak_bytes, 8 * MiB);
  const DeviceAddress e = alloc(4 * MiB);  // device pages of b, not its host pages
  EXPECT_EQ(allocator->spill().live_bytes, 4 * MiB);
  EXPECT_EQ(allocator->trim(16 * MiB), Status::ok);  // nothing of the device
  EXPECT_EQ(gpu->used_host_bytes(0), 4 * MiB);
  EXPECT_EQ(gpu->used_bytes(0), 16 * MiB);
  for (const DeviceAddress address : {c, d, e}) free(address);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(gpu->used_host_bytes(0), 0U);
  EXPECT_EQ(allocator->spill().bytes, 0U);
}

TEST_F(Spill, WithoutWindowsNoMoreThanIsAllowed) {
  start({.capacity = 16 * MiB, .settings = "spill:8MiB,windows:off", .host_bytes = 64 * MiB});
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(alloc(4 * MiB));
  const DeviceAddress spilled = alloc(8 * MiB);
  EXPECT_EQ(gpu->used_host_bytes(0), 8 * MiB);
  free(blocks[0]);
  free(blocks[2]);
  EXPECT_EQ(try_alloc(6 * MiB), Status::out_of_memory);  // 8 are free, but not side by side
  EXPECT_EQ(gpu->used_host_bytes(0), 8 * MiB);
  for (const DeviceAddress address : {blocks[1], blocks[3], spilled}) free(address);
}

TEST_F(Spill, ARepeatingProgramFindsItAgainUntilItIsIdle) {
  start({.capacity = 16 * MiB, .settings = "spill:8MiB", .host_bytes = 64 * MiB});
  for (int step = 0; step < 5; ++step) {
    const DeviceAddress a = alloc(12 * MiB);
    const DeviceAddress b = alloc(6 * MiB);
    EXPECT_EQ(gpu->used_host_bytes(0), 2 * MiB);
    free(a);
    free(b);
  }
  EXPECT_EQ(allocator->counters().windows.made, 1U);  // the same one each time
  // A phase that needs less: the host has its memory back some time.
  for (int step = 0; step < 100 && gpu->used_host_bytes(0) != 0; ++step) {
    free(alloc((5 + step % 7) * MiB));
    free(alloc((5 + step % 5) * MiB + 4096, side));
  }
  EXPECT_EQ(gpu->used_host_bytes(0), 0U);
  EXPECT_EQ(allocator->spill().bytes, 0U);
  // What is spilled then is spilled since then, not since the first time.
  const auto before = std::chrono::steady_clock::now();
  const DeviceAddress again = alloc(20 * MiB);
  EXPECT_LE(allocator->spill().since, std::chrono::steady_clock::now() - before);
  free(again);
}

// To give it back the host waits for the device, which ends a capture with an error.
TEST_F(Spill, IsNotGivenBackWhileAGraphIsCaptured) {
  constexpr PoolId kGraph{1, 0};
  start({.capacity = 16 * MiB, .settings = "spill:8MiB", .host_bytes = 64 * MiB});
  const DeviceAddress a = alloc(12 * MiB);
  free(alloc(6 * MiB));
  free(a);
  gpu->device_synchronize(0);
  begin(kGraph, {third});
  gpu->begin_capture(0, third);
  const DeviceAddress captured = alloc(MiB, third);
  const std::uint64_t waits = calls(DriverCall::device_synchronize);
  const auto go_on = [&] {
    for (int step = 0; step < 100; ++step) {
      free(alloc((5 + step % 7) * MiB));
      free(alloc((5 + step % 5) * MiB + 4096, side));
    }
  };
  go_on();
  EXPECT_EQ(calls(DriverCall::device_synchronize), waits);
  EXPECT_EQ(gpu->used_host_bytes(0), 2 * MiB);
  gpu->end_capture(third);
  end(kGraph);
  go_on();
  EXPECT_EQ(gpu->used_host_bytes(0), 0U);
  free(captured);
  release(kGraph);
}

TEST_F(Spill, OnlyWhereTheDeviceMapsHostMemory) {
  start({.capacity = 8 * MiB, .settings = "spill:8MiB"});
  EXPECT_EQ(allocator->spill().limit_bytes, 0U);
  EXPECT_EQ(try_alloc(10 * MiB), Status::out_of_memory);
  EXPECT_THAT(allocator->last_failure(), ::testing::HasSubstr("cannot map host memory"));
}

// What stood in the way of the device's own memory is what a user must know.
TEST_F(Spill, FailsForWhatTheDriverRefusedBefore) {
  start({.capacity = 32 * MiB, .settings = "spill:2MiB", .host_bytes = 64 * MiB});
  faults->fail({.kind = DriverCall::mem_create,
                .status = DriverStatus::illegal_address,
                .persistent = true});
  EXPECT_EQ(try_alloc(10 * MiB), Status::driver_error);
  EXPECT_THAT(allocator->last_failure(),
              ::testing::HasSubstr("the driver failed with CUDA_ERROR_ILLEGAL_ADDRESS"));
  faults->heal();
  EXPECT_EQ(try_alloc(10 * MiB), Status::ok);
  EXPECT_EQ(try_alloc(40 * MiB), Status::out_of_memory);
  EXPECT_THAT(allocator->last_failure(), ::testing::Not(::testing::HasSubstr("the driver")));
}

TEST_F(Spill, AfterCallbacksAndWithSeveralStreams) {
  start({.capacity = 16 * MiB, .settings = "spill:16MiB", .host_bytes = 64 * MiB});
  std::vector<DeviceAddress> cache = {alloc(4 * MiB)};
  allocator->add_free_memory_callback([&] {
    if (cache.empty()) return false;
    EXPECT_EQ(allocator->free(cache.back()), Status::ok);
    cache.pop_back();
    return true;
  });
  const DeviceAddress a = alloc(14 * MiB, side);
  EXPECT_EQ(gpu->used_host_bytes(0), 0U);
  const DeviceAddress b = alloc(4 * MiB, third);
  EXPECT_EQ(allocator->record_stream(b, side), Status::ok);
  gpu->order(0, third, side);
  write(b, 4 * MiB, side);
  free(b);
  const DeviceAddress c = alloc(4 * MiB);  // comes after both
  free(a);
  free(c);
}

// Small blocks in host memory are not reserved of the device.
TEST_F(Spill, StatisticsDoNotGoBelowZero) {
  start({.capacity = 4 * MiB, .settings = "spill:16MiB", .host_bytes = 64 * MiB});
  const DeviceAddress a = alloc(4 * MiB);
  std::vector<DeviceAddress> small;
  for (int i = 0; i < 4; ++i) small.push_back(alloc(MiB / 2));
  free(a);
  EXPECT_EQ(allocator->trim(), Status::ok);
  const PoolStat found = allocator->statistics().reserved_bytes;
  EXPECT_EQ(found.all.current, 0);
  EXPECT_EQ(found.small_pool.current, 0);
  EXPECT_EQ(found.large_pool.current, 0);
  for (const DeviceAddress address : small) free(address);
}

TEST_F(Spill, APoolsBlocksThereAreThePools) {
  start({.capacity = 8 * MiB, .settings = "spill:16MiB", .host_bytes = 64 * MiB});
  begin({0, 1});
  const DeviceAddress a = alloc(12 * MiB);
  EXPECT_EQ(allocator->pool_live_bytes({0, 1}), 12 * MiB);
  EXPECT_EQ(allocator->record_stream(a, side), Status::ok);
  end({0, 1});
  release({0, 1});
  EXPECT_EQ(allocator->pool_live_bytes({0, 1}), 12 * MiB);
  free(a);
  EXPECT_EQ(allocator->pool_live_bytes({0, 1}), 0U);
}

TEST_F(Spill, IsInTheReport) {
  start({.capacity = 8 * MiB, .settings = "spill:4MiB", .host_bytes = 64 * MiB});
  const DeviceAddress a = alloc(11 * MiB);
  EXPECT_EQ(try_alloc(4 * MiB), Status::out_of_memory);
  const HeapReport heap = allocator->report();
  EXPECT_EQ(heap.spill.bytes, 4 * MiB);
  std::uint64_t spilled = 0;
  for (const BlockReport& piece : heap.home) {
    if (piece.spilled) spilled += piece.bytes;
  }
  EXPECT_EQ(spilled, 4 * MiB);
  const OutOfMemoryReport why = explain(heap, allocator->last_failed_request(), 0);
  EXPECT_EQ(why.spilled_bytes, 4 * MiB);
  EXPECT_THAT(to_text(why), ::testing::HasSubstr("4.00 MiB lie in host memory"));
  free(a);
}

TEST_F(Spill, AnyCallMayFail) {
  for (std::uint64_t nth = 1;; ++nth) {
    SCOPED_TRACE(nth);
    start({.capacity = 16 * MiB, .settings = "spill:16MiB", .host_bytes = 64 * MiB});
    std::vector<DeviceAddress> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(alloc(2 * MiB));
    for (int i = 0; i < 8; i += 2) free(blocks[i]);
    faults->fail({.kind = {}, .nth = nth, .status = DriverStatus::unknown, .persistent = false});
    DeviceAddress wide = 0;
    const Status status = allocator->alloc(12 * MiB, 0, wide);
    const bool fired = faults->fired() != 0;
    faults->heal();
    allocator->validate();
    if (status != Status::ok) wide = alloc(12 * MiB);
    free(wide);
    for (int i = 1; i < 8; i += 2) free(blocks[i]);
    EXPECT_EQ(allocator->trim(), Status::ok);
    allocator->validate();
    EXPECT_EQ(gpu->used_host_bytes(0), 0U);
    EXPECT_EQ(gpu->used_bytes(0), 0U);
    allocator.reset();
    EXPECT_EQ(gpu->leaks(), "");
    if (!fired) break;
  }
}

}  // namespace
}  // namespace gapless
