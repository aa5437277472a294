// Memory that is had again at the address where it was freed (device/at_address.cc).
#include <gtest/gtest.h>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

class AtAddress : public testing::OnDevice {};

TEST_F(AtAddress, FreedMemoryIsHadAgainWhereItWas) {
  start();
  const DeviceAddress a = alloc(10 * MiB);
  const auto at = [&](DeviceAddress address, std::uint64_t bytes, StreamHandle stream = 0) {
    const Status status = allocator->alloc_at(bytes, stream, address);
    allocator->validate();
    if (status == Status::ok) write(address, bytes, stream);
    return status;
  };
  EXPECT_EQ(at(a, 512), Status::invalid_argument);  // live
  free(a);
  EXPECT_EQ(at(a, 10 * MiB), Status::ok);
  EXPECT_EQ(allocator->size_of(a), 10 * MiB);
  EXPECT_EQ(allocator->statistics().allocated_bytes.all.current, 10 * MiB);
  free(a);
  EXPECT_EQ(at(a + 3 * MiB, 1000), Status::ok);
  EXPECT_EQ(allocator->statistics().requested_bytes.all.current, 1000);
  EXPECT_EQ(at(a + 2 * MiB, 2 * MiB), Status::invalid_argument);  // not all of it
  EXPECT_EQ(at(a + 4 * MiB, 6 * MiB), Status::ok);
  EXPECT_EQ(at(a + 9 * MiB, 512), Status::invalid_argument);
  for (const DeviceAddress none : {a + 1, a - 512, a + 10 * MiB, DeviceAddress{0}}) {
    EXPECT_EQ(at(none, 512), Status::invalid_argument);
  }
  EXPECT_EQ(at(a, 0), Status::invalid_argument);
  EXPECT_EQ(at(a, 512, side), Status::invalid_argument);  // another stream's
  free(a + 3 * MiB);
  free(a + 4 * MiB);
  // A pool has what is its own.
  begin({0, 1});
  EXPECT_EQ(at(a, 512), Status::invalid_argument);
  const DeviceAddress b = alloc(2 * MiB);
  free(b);
  EXPECT_EQ(at(b, MiB), Status::ok);
  end({0, 1});
  EXPECT_EQ(at(b + MiB, MiB), Status::invalid_argument);
  free(b);
  release({0, 1});
}

TEST_F(AtAddress, NotInAPoolThatSleeps) {
  start();
  begin({0, 1});
  const DeviceAddress kept = alloc(4 * MiB);
  const DeviceAddress freed = alloc(2 * MiB);
  free(freed);
  EXPECT_EQ(allocator->sleep_pool({0, 1}, false), Status::ok);
  EXPECT_EQ(allocator->alloc_at(MiB, 0, freed), Status::invalid_argument);
  EXPECT_EQ(allocator->wake_pool({0, 1}), Status::ok);
  EXPECT_EQ(allocator->alloc_at(MiB, 0, freed), Status::ok);
  end({0, 1});
  free(freed);
  free(kept);
  release({0, 1});
}

TEST_F(AtAddress, WhileAGraphIsCaptured) {
  start();
  begin({1, 0}, {side});
  gpu->begin_capture(0, side);
  const DeviceAddress a = alloc(4 * MiB, side);
  free(a);
  EXPECT_EQ(allocator->alloc_at(2 * MiB, side, a + MiB), Status::ok);
  write(a + MiB, 2 * MiB, side);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end({1, 0});
  EXPECT_EQ(calls(DriverCall::event_record), 0U);
  gpu->replay(graph, side);
  free(a + MiB);
  release({1, 0});
  // The graph may have written there: others wait.
  EXPECT_EQ(try_alloc(60 * MiB), Status::ok);
  begin({0, 2});
  EXPECT_EQ(allocator->set_pool_no_split({0, 2}, true), Status::ok);
  const DeviceAddress b = alloc(MiB);
  free(b);
  EXPECT_EQ(allocator->alloc_at(512, 0, b), Status::invalid_argument);
  end({0, 2});
  release({0, 2});
}

TEST_F(AtAddress, AlsoInsideAWindow) {
  start();
  std::vector<DeviceAddress> pieces;
  for (int i = 0; i < 20; ++i) pieces.push_back(alloc(2 * MiB));
  for (std::size_t i = 0; i < pieces.size(); i += 2) free(pieces[i]);
  const DeviceAddress joined = alloc(14 * MiB);
  free(joined);
  EXPECT_EQ(allocator->alloc_at(8 * MiB, 0, joined + 3 * MiB), Status::ok);
  allocator->validate();
  write(joined + 3 * MiB, 8 * MiB, 0);
  EXPECT_EQ(allocator->alloc_at(MiB, 0, joined + 10 * MiB), Status::invalid_argument);
  EXPECT_EQ(allocator->alloc_at(2 * MiB, 0, joined + 12 * MiB), Status::ok);
  free(joined + 3 * MiB);
  free(joined + 12 * MiB);
  for (std::size_t i = 1; i < pieces.size(); i += 2) free(pieces[i]);
}

TEST_F(AtAddress, WithoutVirtualMemoryManagement) {
  start({.has_vmm = false});
  const DeviceAddress a = alloc(6 * MiB);
  free(a);
  EXPECT_EQ(allocator->alloc_at(2 * MiB, 0, a + 4 * MiB), Status::ok);
  EXPECT_EQ(allocator->alloc_at(2 * MiB, 0, a + 5 * MiB), Status::invalid_argument);
  free(a + 4 * MiB);
}

}  // namespace
}  // namespace gapless
