// What PyTorch's own allocators cannot do, done: each program has a test of the same name in
// tests/torch/test_native_defects.py, which shows PyTorch's allocators failing it.
#include "allocator/report/out_of_memory.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

class NativeDefects : public testing::OnDevice {
 protected:
  void start(std::uint64_t capacity = GiB) {
    OnDevice::start({.capacity = capacity, .settings = ""});
  }
  // In MiB, as there.
  DeviceAddress block(double mib, StreamHandle stream = 0) {
    return alloc(static_cast<std::uint64_t>(mib * MiB), stream);
  }
  void free_all(std::vector<DeviceAddress>& blocks) {
    for (const DeviceAddress address : blocks) free(address);
    blocks.clear();
  }
  [[nodiscard]] std::uint64_t reserved_mib() const { return reserved() / MiB; }
};

TEST_F(NativeDefects, MemoryInPiecesOfSegmentsIsJoined) {
  start();
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(block(16));
  free_all(blocks);
  for (int i = 0; i < 4; ++i) blocks.push_back(block(32));
  EXPECT_EQ(reserved_mib(), 128U);
  free_all(blocks);
}

TEST_F(NativeDefects, ALiveBlockBetweenTwoHolesDoesNotKeepThemApart) {
  start();
  std::vector<DeviceAddress> all;
  for (int i = 0; i < 16; ++i) all.push_back(block(20));
  std::vector<DeviceAddress> kept;
  for (int i = 0; i < 16; ++i) {
    if (i % 2 == 0) {
      free(all[i]);
    } else {
      kept.push_back(all[i]);
    }
  }
  kept.push_back(block(160));
  EXPECT_EQ(reserved_mib(), 320U);
  free_all(kept);
}

TEST_F(NativeDefects, SmallAndLargeRequestsShareMemory) {
  start();
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 256; ++i) blocks.push_back(block(0.5));
  free_all(blocks);
  for (int i = 0; i < 8; ++i) blocks.push_back(block(16));
  EXPECT_EQ(reserved_mib(), 128U);
  free_all(blocks);
}

TEST_F(NativeDefects, AStreamUsedOnceStrandsNothing) {
  start();
  free(block(400, side));
  gpu->device_synchronize(0);
  const DeviceAddress now = block(400);
  EXPECT_EQ(reserved_mib(), 400U);
  free(now);
}

TEST_F(NativeDefects, RecordStreamHoldsNoMemoryBack) {
  start();
  for (int step = 0; step < 6; ++step) {
    const DeviceAddress x = block(100);
    gpu->order(0, 0, side);
    write(x, 100 * MiB, side, 50000000);
    EXPECT_EQ(allocator->record_stream(x, side), Status::ok);
    free(x);
  }
  EXPECT_LE(reserved_mib(), 103U);
  EXPECT_EQ(counting->counts().host_syncs(), 0U);
}

TEST_F(NativeDefects, APoolsRequestGetsWhatIsFreeOutside) {
  start();
  free(block(600));
  begin({0, 1});
  const DeviceAddress inside = block(300);
  end({0, 1});
  EXPECT_EQ(reserved_mib(), 600U);
  free(inside);
  release({0, 1});
}

// gapless has no max_split_size: there is nothing it would be for.
TEST_F(NativeDefects, LargeBlocksAreSplitAndJoined) {
  start(4 * GiB);
  for (int step = 0; step < 8; ++step) {
    free(block(100 + 30 * step));
    std::vector<DeviceAddress> rest;
    for (int i = 0; i < 6; ++i) rest.push_back(block(30));
    free_all(rest);
  }
  EXPECT_EQ(reserved_mib(), 310U);
}

TEST_F(NativeDefects, TwoStreamsInOneGraphShare) {
  start();
  begin({1, 0}, {side, third});
  gpu->begin_capture(0, side);
  for (int i = 0; i < 4; ++i) {
    const DeviceAddress a = block(50, side);
    gpu->order(0, side, third);
    free(a);
    const DeviceAddress b = block(50, third);
    gpu->order(0, third, side);
    free(b);
  }
  EXPECT_EQ(reserved_mib(), 50U);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end({1, 0});
  gpu->replay(graph, 0);
  gpu->device_synchronize(0);
  release({1, 0});
}

TEST_F(NativeDefects, APoolsPiecesAreJoined) {
  start();
  begin({0, 1});
  for (const int mib : {30, 40, 50, 60, 70}) free(block(mib));
  end({0, 1});
  EXPECT_EQ(reserved_mib(), 70U);
  release({0, 1});
}

// 189504.
TEST_F(NativeDefects, WhatTheSynchronisationFreedIsFound) {
  OnDevice::start({.capacity = 600 * MiB, .settings = "cross_stream:never"});
  free(block(600));
  const DeviceAddress kept = block(300);
  const DeviceAddress lent = block(300);
  gpu->order(0, 0, side);
  write(lent, 300 * MiB, side, 500000000);
  EXPECT_EQ(allocator->record_stream(lent, side), Status::ok);
  free(lent);
  const DeviceAddress again = block(300);  // at the first time of asking
  EXPECT_EQ(again, lent);
  free(kept);
  free(again);
}

TEST_F(NativeDefects, TheMessageAdvisesWhatWouldHelp) {
  start();
  EXPECT_EQ(try_alloc(2000 * MiB), Status::out_of_memory);
  const OutOfMemoryReport why = explain(allocator->report(), allocator->last_failed_request(), GiB);
  ASSERT_FALSE(why.advice.empty());
  EXPECT_THAT(to_text(why), ::testing::HasSubstr("keep 976.00 MiB less alive"));
}

}  // namespace
}  // namespace gapless
