// What goes back sooner or later, whatever came in between: windows, addresses, memory that the
// driver refused to take.

#include "tests/support/on_device.h"

namespace gapless {
namespace {

class GivenBack : public testing::OnDevice {
 protected:
  // A device full of single pages, each second one free.
  std::vector<DeviceAddress> comb(std::uint64_t pages) {
    std::vector<DeviceAddress> blocks;
    for (std::uint64_t i = 0; i < pages; ++i) blocks.push_back(alloc(2 * MiB));
    std::vector<DeviceAddress> kept;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      i % 2 == 0 ? free(blocks[i]) : kept.push_back(blocks[i]);
    }
    gpu->device_synchronize(0);
    return kept;
  }
};

TEST_F(GivenBack, RetiredWindowsByATrim) {
  start({.settings = "window_factor:1,window_floor:0"});
  churn(60);
  end_churn();
  ASSERT_GT(allocator->report().windows, 0U);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(allocator->report().windows, 0U);
  EXPECT_EQ(reserved(), 0U);
}

// It waits to be unmapped still: whoever unmaps it beside that leaves a number that another window
// has afterwards.
TEST_F(GivenBack, ARetiredWindowThatTheDriverKept) {
  start({.settings = "window_factor:1,window_floor:0"});
  for (std::uint64_t nth = 1; nth <= 6; ++nth) {
    SCOPED_TRACE(nth);
    churn(60);
    end_churn();
    faults->fail({.kind = DriverCall::mem_unmap, .nth = nth});
    (void)allocator->trim();
    faults->heal();
    gpu->advance(1000000000);
    churn(60);
    end_churn();
    EXPECT_EQ(allocator->trim(), Status::ok);
    EXPECT_EQ(allocator->report().windows, 0U);
  }
}

// A window that needs two new pages: they are there when the driver refuses to map it.
TEST_F(GivenBack, ThePagesOfAWindowThatFailed) {
  start();
  const std::vector<DeviceAddress> kept = comb(8);
  ASSERT_EQ(reserved(), 16 * MiB);
  std::uint64_t mapped_before = 0;
  for (std::uint64_t nth = 1; nth <= 8; ++nth) {
    faults->fail({.kind = DriverCall::mem_map, .nth = nth, .persistent = true});
    DeviceAddress none = 0;
    ASSERT_EQ(allocator->alloc(12 * MiB, 0, none), Status::driver_error);
    allocator->validate();
    faults->heal();
    EXPECT_EQ(reserved(), 16 * MiB) << "mem_map " << nth;
    mapped_before += calls(DriverCall::mem_create) > 8 ? 1 : 0;
  }
  EXPECT_GT(mapped_before, 0U);  // pages did come
  const DeviceAddress window = alloc(12 * MiB);
  EXPECT_EQ(reserved(), 20 * MiB);
  free(window);
  for (const DeviceAddress address : kept) free(address);
}

// It was pinned: the graph wrote there each time it ran.
TEST_F(GivenBack, TheWindowsOfAGraphThatIsGone) {
  constexpr PoolId kGraph{1, 0};
  start({.capacity = 32 * MiB});
  const std::vector<DeviceAddress> kept = comb(16);
  begin(kGraph, {side});
  gpu->begin_capture(0, side);
  free(alloc(8 * MiB, side));
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kGraph);
  EXPECT_EQ(allocator->report().windows, 1U);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(allocator->report().windows, 1U);
  gpu->replay(graph, third);
  release(kGraph);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(allocator->report().windows, 0U);
  EXPECT_EQ(reserved(), 16 * MiB);
  for (const DeviceAddress address : kept) free(address);
}

TEST_F(GivenBack, WindowsWhoseEvictionWasRefused) {
  start({.capacity = 64 * MiB, .settings = "window_factor:1,window_floor:0"});
  faults->fail({.kind = DriverCall::event_record, .nth = 1, .persistent = true});
  churn(60);
  EXPECT_GT(faults->fired(), 0U);
  faults->heal();
  EXPECT_GT(allocator->report().window_mapped_bytes, reserved());  // so some are to go
  EXPECT_EQ(allocator->counters().windows.evicted, 0U);
  churn(20);
  gpu->advance(1'000'000'000);
  churn(20);
  EXPECT_GT(allocator->counters().windows.evicted, 0U);
  end_churn();
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(allocator->report().windows, 0U);
}

TEST_F(GivenBack, TheAddressesOfWindowsThatCouldNotBeMapped) {
  start({.capacity = 32 * MiB});
  const std::vector<DeviceAddress> kept = comb(16);
  std::uint64_t reservations = 0;
  for (unsigned i = 0; i < 40; ++i) {
    // Of several calls the first or a later one; or the one that gives access.
    const bool access = i % 4 == 0;
    faults->fail({.kind = access ? DriverCall::mem_set_access : DriverCall::mem_map,
                  .nth = access ? 1U : 1U + i % 3,
                  .persistent = true});
    EXPECT_EQ(try_alloc(12 * MiB + (i % 8) * 512 * KiB), Status::driver_error);
    faults->heal();
    if (i == 0) reservations = calls(DriverCall::address_reserve);
  }
  free(alloc(16 * MiB));
  EXPECT_EQ(calls(DriverCall::address_reserve), reservations);
  for (const DeviceAddress address : kept) free(address);
}

TEST_F(GivenBack, WindowsWhoseAddressesOthersNeed) {
  constexpr std::uint64_t kHome = 160 * MiB;  // of a device of 16 pages
  start({.capacity = 32 * MiB, .address_bytes = kHome + 40 * MiB});
  const std::vector<DeviceAddress> kept = comb(16);
  const auto used = [&] { return allocator->report().window_addresses.used_bytes; };
  // A window has addresses for four times its pages, while there are so many.
  std::vector<DeviceAddress> blocks = {alloc(4 * MiB), alloc(4 * MiB)};
  EXPECT_EQ(used(), 32 * MiB);
  blocks.push_back(alloc(4 * MiB));
  blocks.push_back(alloc(4 * MiB));
  EXPECT_EQ(used(), 40 * MiB);
  free(blocks[2]);
  free(blocks[3]);
  const std::uint64_t retries = allocator->counters().retries;
  const DeviceAddress large = alloc(8 * MiB);
  EXPECT_EQ(used(), 40 * MiB);
  EXPECT_EQ(allocator->report().windows, 3U);
  EXPECT_EQ(allocator->report().window_addresses.reserved_bytes, 40 * MiB);
  EXPECT_EQ(allocator->counters().retries, retries + 1);
  free(large);
  free(blocks[0]);
  const DeviceAddress most = alloc(6 * MiB);  // of what was the large one's
  // What fails for another reason does not wait for them any more.
  faults->fail({.kind = DriverCall::mem_map, .nth = 1, .persistent = true});
  EXPECT_EQ(try_alloc(6 * MiB), Status::driver_error);
  faults->heal();
  EXPECT_EQ(allocator->counters().retries, retries + 1);
  for (const DeviceAddress block : {blocks[1], most}) free(block);
  for (const DeviceAddress address : kept) free(address);
}

// It stays counted until it is taken, which trim() tries again.
TEST_F(GivenBack, WhatTheDriverOnceWouldNotTake) {
  for (const bool any_left : {true, false}) {
    SCOPED_TRACE(any_left);
    start({.capacity = 32 * MiB});
    const DeviceAddress live = any_left ? alloc(4 * MiB) : 0;
    free(alloc(8 * MiB));
    faults->fail({.kind = DriverCall::mem_release, .nth = 1, .persistent = true});
    (void)allocator->trim();
    EXPECT_EQ(reserved(), (any_left ? 12 : 8) * MiB);
    EXPECT_EQ(gpu->used_bytes(0), reserved());
    faults->heal();
    EXPECT_EQ(allocator->trim(), Status::ok);
    EXPECT_EQ(reserved(), (any_left ? 4 : 0) * MiB);
    EXPECT_EQ(gpu->used_bytes(0), reserved());
    free(live);
    testing::OnDevice::TearDown();
  }
}

}  // namespace
}  // namespace gapless
