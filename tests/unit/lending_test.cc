// Private pools lend what is free in them, and are owed it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/report/out_of_memory.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

constexpr PoolId kLendingPool{0, 1};
constexpr PoolId kOtherPool{0, 2};

class Lending : public testing::OnDevice {
 protected:
  // A pool that has 8 MiB free.
  DeviceAddress fill_and_free() {
    const DeviceAddress address = alloc_in(kLendingPool, 8 * MiB);
    free(address);
    return address;
  }
  DeviceAddress alloc_in(PoolId id, std::uint64_t bytes) {
    begin(id);
    const DeviceAddress address = alloc(bytes);
    end(id);
    return address;
  }
  // However often it was begun.
  void release_all(PoolId id) {
    while (allocator->pool_users(id) != 0) release(id);
  }
  [[nodiscard]] std::uint64_t owed(PoolId id) const {
    std::uint64_t bytes = 0;
    for (const PoolDebt& debt : allocator->owed_to_pools()) {
      if (debt.pool == id) bytes += debt.bytes;
    }
    return bytes;
  }
};

TEST_F(Lending, MemoryGrowsOnlyWhenPoolsHaveNoneFree) {
  start();
  fill_and_free();
  const DeviceAddress beside = alloc(6 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(owed(kLendingPool), 8 * MiB);
  free(beside);
  const DeviceAddress again = alloc_in(kLendingPool, 8 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(owed(kLendingPool), 0U);
  free(again);
  release_all(kLendingPool);
}

TEST_F(Lending, PoolsLendToEachOther) {
  start();
  fill_and_free();
  const DeviceAddress other = alloc_in(kOtherPool, 8 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(owed(kLendingPool), 8 * MiB);
  EXPECT_EQ(owed(kOtherPool), 0U);
  free(other);
  release_all(kOtherPool);
  release_all(kLendingPool);
}

TEST_F(Lending, AMemoryShortageIsWhereItWasWithoutIt) {
  start({.capacity = 16 * MiB});
  fill_and_free();
  const DeviceAddress beside = alloc(8 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  // The other half of the device is the pool's.
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(2 * MiB, 0, none), Status::out_of_memory);
  const OutOfMemoryReport report =
      explain(allocator->report(), allocator->last_failed_request(), 8 * MiB);
  ASSERT_EQ(report.owed_to_pools.size(), 1U);
  EXPECT_EQ(report.owed_to_pools[0].bytes, 8 * MiB);
  EXPECT_EQ(report.missing_bytes, 2 * MiB);
  EXPECT_THAT(to_text(report), HasSubstr("8.00 MiB are kept on the device for private pools"));
  EXPECT_THAT(report.advice.front(), HasSubstr("release pool {0, 1}, for which 8.00 MiB are kept"));
  const DeviceAddress again = alloc_in(kLendingPool, 8 * MiB);
  EXPECT_EQ(owed(kLendingPool), 0U);
  free(again);
  free(beside);
  release_all(kLendingPool);
}

TEST_F(Lending, NothingIsLentThatTheDeviceHasNotLeft) {
  start({.capacity = 14 * MiB});
  const DeviceAddress address = fill_and_free();
  EXPECT_EQ(try_alloc(8 * MiB), Status::out_of_memory);
  EXPECT_EQ(owed(kLendingPool), 0U);
  const DeviceAddress beside = alloc(6 * MiB);
  EXPECT_EQ(reserved(), 14 * MiB);
  EXPECT_EQ(alloc_in(kLendingPool, 8 * MiB), address);
  free(address);
  free(beside);
  release_all(kLendingPool);
}

TEST_F(Lending, TheLimitCountsAsTheDeviceDoes) {
  start({.settings = "limit:14MiB"});
  fill_and_free();
  EXPECT_EQ(try_alloc(8 * MiB), Status::out_of_memory);
  EXPECT_EQ(owed(kLendingPool), 0U);
  release_all(kLendingPool);
  EXPECT_EQ(try_alloc(8 * MiB), Status::ok);
}

TEST_F(Lending, TheLimitKeepsWhatIsOwedWithoutVirtualMemoryToo) {
  start({.settings = "limit:16MiB", .has_vmm = false});
  fill_and_free();
  const DeviceAddress beside = alloc(8 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(owed(kLendingPool), 8 * MiB);
  EXPECT_EQ(try_alloc(2 * MiB), Status::out_of_memory);
  const DeviceAddress again = alloc_in(kLendingPool, 8 * MiB);
  free(again);
  free(beside);
  release_all(kLendingPool);
}

TEST_F(Lending, WhatWasLentIsOwedAfterATrimToo) {
  start({.capacity = 16 * MiB});
  fill_and_free();
  free(alloc(8 * MiB));
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 0U);
  EXPECT_EQ(owed(kLendingPool), 8 * MiB);
  EXPECT_EQ(try_alloc(10 * MiB), Status::out_of_memory);
  release_all(kLendingPool);
  EXPECT_EQ(owed(kLendingPool), 0U);
  EXPECT_EQ(try_alloc(10 * MiB), Status::ok);
}

TEST_F(Lending, UseOnOomGivesMoreThanLending) {
  start({.capacity = 14 * MiB});
  fill_and_free();
  EXPECT_EQ(allocator->set_pool_use_on_oom(kLendingPool, true), Status::ok);
  EXPECT_EQ(try_alloc(8 * MiB), Status::ok);
  release_all(kLendingPool);
}

// PyTorch's test_mempool_use_on_oom on a device that is all but full.
TEST_F(Lending, APoolThatMayBeUsedOnOomIsNotOwedWhatItLent) {
  start({.capacity = 24 * MiB});
  fill_and_free();
  EXPECT_EQ(allocator->set_pool_use_on_oom(kLendingPool, true), Status::ok);
  const DeviceAddress rest = alloc(14 * MiB);
  EXPECT_EQ(owed(kLendingPool), 8 * MiB);
  EXPECT_EQ(try_alloc(12 * MiB), Status::out_of_memory);
  EXPECT_EQ(owed(kLendingPool), 8 * MiB);
  EXPECT_EQ(try_alloc(10 * MiB), Status::ok);
  EXPECT_EQ(owed(kLendingPool), 0U);
  free(rest);
  release_all(kLendingPool);
}

TEST_F(Lending, PoolsWithAnOrderOfTheirOwnLendNothing) {
  start();
  begin(kLendingPool);
  EXPECT_EQ(allocator->set_pool_no_split(kLendingPool, true), Status::ok);
  free(alloc(8 * MiB));
  end(kLendingPool);
  begin(kOtherPool);
  free(alloc(8 * MiB));
  end(kOtherPool);
  (void)allocator->checkpoint_pool(kOtherPool);
  const DeviceAddress beside = alloc(8 * MiB);
  EXPECT_EQ(reserved(), 24 * MiB);
  EXPECT_EQ(owed(kLendingPool) + owed(kOtherPool), 0U);
  free(beside);
  release_all(kLendingPool);
  release_all(kOtherPool);
}

TEST_F(Lending, APoolMayBeginAndEndToLend) {
  start();
  fill_and_free();
  EXPECT_EQ(allocator->set_pool_no_split(kLendingPool, true), Status::ok);
  free(alloc(8 * MiB));
  EXPECT_EQ(reserved(), 16 * MiB);
  EXPECT_EQ(owed(kLendingPool), 0U);
  EXPECT_EQ(allocator->set_pool_no_split(kLendingPool, false), Status::ok);
  free(alloc(16 * MiB));
  EXPECT_EQ(reserved(), 16 * MiB);
  EXPECT_EQ(owed(kLendingPool), 8 * MiB);
  release_all(kLendingPool);
}

TEST_F(Lending, APoolThatGraphsUseLendsNothing) {
  start();
  begin(kLendingPool, {side});
  gpu->begin_capture(0, side);
  const DeviceAddress captured = alloc(8 * MiB, side);
  free(captured);
  (void)gpu->end_capture(side);
  end(kLendingPool);
  const DeviceAddress beside = alloc(8 * MiB);
  EXPECT_NE(beside, captured);
  EXPECT_EQ(reserved(), 16 * MiB);
  free(beside);
  release_all(kLendingPool);
}

// A MemPool is begun for one thread; backward passes run on another, beside it.
TEST_F(Lending, ABegunPoolThatServedARequestIsNoCapture) {
  start();
  bool on_its_thread = true;
  ASSERT_EQ(allocator->begin_pool(kLendingPool, [&](StreamHandle) { return on_its_thread; }),
            Status::ok);
  const DeviceAddress first = alloc(8 * MiB);
  free(first);
  on_its_thread = false;
  const DeviceAddress beside = alloc(8 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(owed(kLendingPool), 8 * MiB);
  free(beside);
  end(kLendingPool);
  release_all(kLendingPool);
}

// The heap of a pool with memory of its own has seen none of the other pools' streams.
TEST_F(Lending, ACaptureThatServedARequestIsOneToAllPools) {
  start();
  const PoolSource source{
      [&](std::uint64_t bytes) {
        DeviceAddress address = 0;
        return gpu->mem_alloc(0, bytes, address) == DriverStatus::ok ? address : 0;
      },
      [&](DeviceAddress address, std::uint64_t /*bytes*/) { gpu->mem_free(0, address); }};
  EXPECT_EQ(allocator->retain_pool(kOtherPool), Status::ok);
  EXPECT_EQ(allocator->set_pool_source(kOtherPool, source), Status::ok);
  begin(kOtherPool, {third});
  const DeviceAddress own = alloc(4 * MiB, third);
  free(own);
  begin(kLendingPool, {side});
  gpu->begin_capture(0, side);
  const DeviceAddress captured = alloc(2 * MiB, side);
  // Waiting for the device would end the capture.
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(128 * MiB, third, none), Status::out_of_memory);
  (void)gpu->end_capture(side);
  free(captured);
  end(kLendingPool);
  end(kOtherPool);
  release_all(kOtherPool);
  release_all(kLendingPool);
}

}  // namespace
}  // namespace gapless
