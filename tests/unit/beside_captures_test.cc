// Requests of other streams while a graph is captured. What a capturing stream frees cannot be
// waited for until the capture has ended; everything else is there as always.
//
//   side, capturing   frees 16 MiB in the capture     no event can say when that is done
//   stream 0          asks for 14 MiB                 other free memory, or new memory
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

constexpr PoolId kGraph{1, 0};

class BesideCaptures : public testing::OnDevice {
 protected:
  void capture(StreamHandle stream) {
    begin(kGraph, {stream});
    gpu->begin_capture(0, stream);
    capturing = stream;
  }
  void end_capture() {
    const simgpu::CapturedGraph graph = gpu->end_capture(capturing);
    end(kGraph);
    release(kGraph);
  }
  StreamHandle capturing = 0;
};

TEST_F(BesideCaptures, WhatACapturingStreamFreesIsNotTheOnlyMemory) {
  start({.capacity = 64 * MiB, .settings = "stream_budget:0"});
  free(alloc(512, 0));
  const DeviceAddress before = alloc(16 * MiB, side);
  capture(side);
  free(before);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(alloc(14 * MiB, 0));
  // What does not fit beside it does not fit.
  EXPECT_EQ(try_alloc(10 * MiB, 0), Status::out_of_memory);
  EXPECT_EQ(gpu->used_bytes(0), reserved());
  end_capture();
  free(alloc(16 * MiB, 0));
  for (const DeviceAddress address : blocks) free(address);
}

TEST_F(BesideCaptures, APageThatItFreedAPartOfIsOthersAsFarAsTheyHadIt) {
  start({.capacity = 2 * MiB, .settings = "stream_budget:0"});
  const DeviceAddress old = alloc(MiB, 0);
  const DeviceAddress young = alloc(MiB, side);
  free(old);
  capture(side);
  free(young);
  EXPECT_EQ(alloc(MiB, third), old);
  EXPECT_EQ(try_alloc(MiB, third), Status::out_of_memory);
  end_capture();
  free(alloc(MiB, third));
  free(old);
}

// Before the capture the same stream freed other pages of the same hole.
TEST_F(BesideCaptures, WhatItFreedBeforeIsHadPageByPage) {
  start({.capacity = 32 * MiB, .settings = "stream_budget:0"});
  free(alloc(512, 0));
  const DeviceAddress first = alloc(10 * MiB, side);
  const DeviceAddress second = alloc(10 * MiB, side);
  const DeviceAddress third_block = alloc(10 * MiB, side);
  free(first);
  free(third_block);
  capture(side);
  free(second);                                // one hole of 30 MiB now
  const DeviceAddress a = alloc(20 * MiB, 0);  // of the pages freed before: in a window
  EXPECT_EQ(reserved(), 30 * MiB);
  EXPECT_EQ(try_alloc(4 * MiB, 0), Status::out_of_memory);
  end_capture();
  free(alloc(10 * MiB, 0));
  free(a);
}

TEST_F(BesideCaptures, MemoryForEveryoneIsNotLost) {
  start({.capacity = 32 * MiB, .settings = ""});
  for (const StreamHandle stream : {StreamHandle{0}, side, third}) free(alloc(10 * MiB, stream));
  // Nobody's in particular, since the host waited.
  EXPECT_EQ(try_alloc(31 * MiB, third), Status::ok);
  const DeviceAddress temporary = alloc(2 * MiB, side);
  capture(side);
  free(temporary);
  for (int i = 0; i < 3; ++i) free(alloc(28 * MiB, third));
  EXPECT_EQ(reserved(), 32 * MiB);
  end_capture();
}

TEST_F(BesideCaptures, AStreamThatJoinsLaterIsNotWaitedForEither) {
  start({.capacity = 64 * MiB, .settings = "stream_budget:0"});
  free(alloc(512, 0));
  const DeviceAddress block = alloc(16 * MiB, third);
  begin(kGraph, {side, third});
  gpu->begin_capture(0, side);
  capturing = side;
  free(block);                 // third does not capture yet
  gpu->order(0, side, third);  // now it does
  const DeviceAddress a = alloc(16 * MiB, 0);
  EXPECT_NE(a, block);
  gpu->order(0, third, side);
  end_capture();
  free(a);
}

// An event that was recorded before the capture can be waited for as always.
TEST_F(BesideCaptures, WhatItFreedBeforeIsWaitedForOnTheDevice) {
  start({.capacity = 16 * MiB, .settings = "stream_budget:0"});
  free(alloc(512, 0));
  free(alloc(12 * MiB, side));
  capture(side);
  const std::uint64_t waits = calls(DriverCall::stream_wait_event);
  free(alloc(12 * MiB, 0));
  EXPECT_EQ(calls(DriverCall::stream_wait_event), waits + 1);
  EXPECT_EQ(calls(DriverCall::device_synchronize), 0U);
  end_capture();
}

TEST_F(BesideCaptures, InAPoolOfItsOwnToo) {
  start({.capacity = 64 * MiB, .settings = "stream_budget:0"});
  constexpr PoolId kEager{0, 7};
  begin(kEager, {0, side});
  free(alloc(512, 0));
  const DeviceAddress block = alloc(16 * MiB, side);
  capture(side);
  free(block);
  const DeviceAddress a = alloc(14 * MiB, 0);
  EXPECT_EQ(allocator->pool_live_bytes(kEager), 14 * MiB);
  end_capture();
  end(kEager);
  free(a);
  release(kEager);
}

TEST_F(BesideCaptures, AndInOneThatSharesNoPage) {
  start({.capacity = 64 * MiB, .settings = "stream_budget:0"});
  constexpr PoolId kEager{0, 7};
  begin(kEager, {0, side});
  EXPECT_EQ(allocator->set_pool_no_split(kEager, true), Status::ok);
  const DeviceAddress block = alloc(16 * MiB, side);
  capture(side);
  free(block);
  const DeviceAddress a = alloc(14 * MiB, 0);
  end_capture();
  end(kEager);
  free(a);
  release(kEager);
}

// Windows that were retired before are unmapped another time: nothing is asked and nobody waits.
TEST_F(BesideCaptures, RetiredWindowsStay) {
  start({.capacity = 64 * MiB, .settings = "window_factor:1,window_floor:0"});
  churn(60);
  gpu->advance(1000000000);  // what retired windows wait for is done now
  capture(side);
  const std::uint64_t evicted = allocator->counters().windows.evicted;
  churn(20);
  EXPECT_EQ(allocator->counters().windows.evicted, evicted);
  EXPECT_EQ(calls(DriverCall::device_synchronize), 0U);
  end_capture();
  churn(20);
  EXPECT_GT(allocator->counters().windows.evicted, evicted);
  end_churn();
}

// No event can be recorded, whatever the reason: the host waits where it may, else that memory is
// left out.
TEST_F(BesideCaptures, ARefusedEventIsNoReasonToFail) {
  for (const bool in_capture : {false, true}) {
    SCOPED_TRACE(in_capture);
    start({.capacity = 64 * MiB, .settings = "stream_budget:0"});
    free(alloc(512, 0));
    const DeviceAddress block = alloc(16 * MiB, third);
    if (in_capture) capture(side);
    free(block);
    faults->fail({.kind = DriverCall::event_record, .nth = 1, .persistent = true});
    const DeviceAddress a = alloc(16 * MiB, 0);
    const DeviceAddress b = alloc(30 * MiB, 0);
    EXPECT_GT(faults->fired(), 0U);
    EXPECT_EQ(try_alloc(16 * MiB, 0), in_capture ? Status::driver_error : Status::ok);
    faults->heal();
    free(alloc(16 * MiB, 0));
    if (in_capture) end_capture();
    free(a);
    free(b);
    testing::OnDevice::TearDown();
  }
}

TEST_F(BesideCaptures, WhatAPoolLeavesIsItsStreamsOwn) {
  start({.capacity = 48 * MiB, .settings = "stream_budget:0"});
  constexpr PoolId kEager{0, 7};
  const DeviceAddress early = alloc(8 * MiB, side);
  capture(side);
  free(early);
  begin(kEager, {0});
  const DeviceAddress pooled = alloc(16 * MiB, 0);
  end(kEager);
  free(pooled);
  release(kEager);  // given up while the graph is captured
  EXPECT_EQ(alloc(16 * MiB, 0), pooled);
  free(pooled);
  end_capture();
}

TEST_F(BesideCaptures, OpeningPoolsLeavesThoseOfGraphsAlone) {
  start({.capacity = 32 * MiB});
  begin(kGraph, {side});
  gpu->begin_capture(0, side);
  const DeviceAddress a = alloc(20 * MiB, side);
  free(a);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kGraph);
  EXPECT_EQ(allocator->set_pool_use_on_oom(kGraph, true), Status::ok);
  EXPECT_EQ(try_alloc(16 * MiB, 0), Status::out_of_memory);
  gpu->replay(graph, third);
  release(kGraph);
  free(alloc(16 * MiB, 0));
}

}  // namespace
}  // namespace gapless
