// Requests that cannot be served are told so before anything is made: nothing is taken from others
// meanwhile, nothing is given back, and few calls are made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

constexpr std::uint64_t kMostCalls = 10;

class Hopeless : public testing::OnDevice {
 protected:
  /// The request fails for lack of memory, and leaves everything as it is.
  void refuse(std::uint64_t bytes, StreamHandle stream = 0) {
    const std::uint64_t used = gpu->used_bytes(0);
    const std::uint64_t peak = gpu->peak_used_bytes(0);
    const std::uint64_t before = counting->counts().total();
    const std::uint64_t made = calls(DriverCall::mem_create);
    DeviceAddress none = 0;
    EXPECT_EQ(allocator->alloc(bytes, stream, none), Status::out_of_memory);
    EXPECT_LE(counting->counts().total() - before, kMostCalls);
    EXPECT_EQ(calls(DriverCall::mem_create), made);
    EXPECT_EQ(gpu->used_bytes(0), used);
    EXPECT_EQ(gpu->peak_used_bytes(0), peak);
    allocator->validate();
  }
};

TEST_F(Hopeless, MoreThanTheDeviceHas) {
  start({.capacity = 80 * GiB});
  refuse(90 * GiB);
  refuse(90 * GiB);
  EXPECT_EQ(gpu->peak_used_bytes(0), 0U);
}

TEST_F(Hopeless, MoreThanIsLeft) {
  start({.capacity = 80 * GiB});
  const DeviceAddress live = alloc(50 * GiB);
  refuse(31 * GiB);
  refuse(79 * GiB);
  free(live);
}

TEST_F(Hopeless, MoreThanOthersLeave) {
  start({.capacity = 80 * GiB});
  MemHandle others = 0;
  gpu->mem_create(0, 60 * GiB, {}, others);
  refuse(30 * GiB);
  refuse(21 * GiB, side);
  gpu->mem_release(others);
  free(alloc(79 * GiB, side));
}

// Others take memory after the device was asked: what was made is given back.
TEST_F(Hopeless, LessThanTheDeviceSaid) {
  start({.capacity = 8 * GiB});
  free(alloc(2 * MiB));  // 8 GiB are there
  MemHandle others = 0;
  gpu->mem_create(0, 8 * GiB - 40 * MiB, {}, others);
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(100 * MiB, 0, none), Status::out_of_memory);
  EXPECT_EQ(gpu->used_bytes(0), 8 * GiB - 40 * MiB + reserved());
  EXPECT_EQ(reserved(), 2 * MiB);
  refuse(100 * MiB);
  refuse(42 * MiB);
  free(alloc(40 * MiB));
  gpu->mem_release(others);
}

TEST_F(Hopeless, WhatIsFreeStays) {
  for (const bool several : {false, true}) {
    start({.capacity = 16 * GiB});
    std::vector<DeviceAddress> blocks;
    for (int i = 0; i < 16; ++i) {
      blocks.push_back(alloc(512 * MiB, several && i % 3 == 1 ? side : 0));
    }
    for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
    ASSERT_EQ(reserved(), 8 * GiB);
    const std::uint64_t waits = calls(DriverCall::device_synchronize);
    refuse(13 * GiB);
    refuse(20 * GiB, several ? third : 0);
    EXPECT_EQ(reserved(), 8 * GiB);
    EXPECT_EQ(calls(DriverCall::device_synchronize), waits);
    free(alloc(11 * GiB));  // 4 GiB of it free in pieces
    for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i]);
    testing::OnDevice::TearDown();
  }
}

TEST_F(Hopeless, WhileAGraphIsCaptured) {
  start({.capacity = 16 * GiB});
  free(alloc(1 * GiB, third));
  const DeviceAddress live = alloc(8 * GiB, side);
  begin({1, 0}, {side});
  gpu->begin_capture(0, side);
  free(live);
  refuse(20 * GiB, side);
  refuse(20 * GiB, third);
  refuse(9 * GiB, third);  // the freed 8 GiB are not to be had now
  free(alloc(7 * GiB, third));
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end({1, 0});
  free(alloc(15 * GiB, third));
  release({1, 0});
}

TEST_F(Hopeless, InPools) {
  start({.capacity = 16 * GiB});
  begin({0, 1});
  const DeviceAddress live = alloc(8 * GiB);
  free(alloc(1 * GiB));
  refuse(9 * GiB);
  EXPECT_EQ(allocator->set_pool_no_split({0, 2}, true), Status::invalid_argument);
  end({0, 1});
  begin({0, 2});
  EXPECT_EQ(allocator->set_pool_no_split({0, 2}, true), Status::ok);
  refuse(9 * GiB);
  end({0, 2});
  // Memory that pools would lend is not taken from them either.
  EXPECT_EQ(allocator->set_pool_use_on_oom({0, 1}, true), Status::ok);
  refuse(9 * GiB);
  EXPECT_EQ(allocator->report().statistics.reserved_bytes.all.current,
            static_cast<std::int64_t>(9 * GiB));
  begin({0, 1});
  free(alloc(1 * GiB));
  EXPECT_EQ(reserved(), 9 * GiB);  // it is the pool's still
  end({0, 1});
  free(live);
  for (const PoolId& id : {PoolId{0, 1}, PoolId{0, 1}, PoolId{0, 2}}) release(id);
}

TEST_F(Hopeless, WithSpill) {
  start({.capacity = 4 * GiB, .settings = "spill:2GiB", .host_bytes = 8 * GiB});
  const DeviceAddress live = alloc(3 * GiB);
  refuse(4 * GiB);
  EXPECT_EQ(gpu->used_host_bytes(0), 0U);
  refuse(100 * GiB);
  free(alloc(2 * GiB));  // a half of it on the host
  EXPECT_GT(allocator->spill().peak_bytes, 0U);
  free(live);
}

TEST_F(Hopeless, AboveTheLimit) {
  start({.capacity = 16 * GiB, .settings = "limit:4GiB"});
  const DeviceAddress live = alloc(3 * GiB);
  const std::uint64_t before = counting->counts().total();
  refuse(2 * GiB);
  refuse(2 * GiB, side);
  EXPECT_EQ(counting->counts().total(), before);  // nobody needs to be asked
  free(live);
}

TEST_F(Hopeless, WithHeadroom) {
  start({.capacity = 16 * GiB, .settings = "headroom:1GiB"});
  const DeviceAddress live = alloc(8 * GiB);
  refuse(9 * GiB);
  free(alloc(15 * GiB / 2));  // it has the headroom, since it would fail else
  free(live);
}

TEST_F(Hopeless, WithoutVmm) {
  start({.capacity = 16 * GiB, .has_vmm = false});
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(alloc(1 * GiB));
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
  refuse(13 * GiB);
  EXPECT_EQ(reserved(), 8 * GiB);  // what is cached stays where giving it back would not help
  const DeviceAddress large = alloc(10 * GiB);
  EXPECT_EQ(reserved(), 16 * GiB);  // and no more of it goes than is needed
  free(large);
  for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i]);
}

// A program that grows asks the device now and then, not with each growth.
TEST_F(Hopeless, GrowthAsksSeldom) {
  start({.capacity = 16 * GiB});
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 2000; ++i) blocks.push_back(alloc(4 * MiB));
  EXPECT_LE(calls(DriverCall::mem_info), 8U);
  EXPECT_LE(calls(DriverCall::mem_info) * 500, counting->counts().total());
  for (const DeviceAddress address : blocks) free(address);
}

}  // namespace
}  // namespace gapless
