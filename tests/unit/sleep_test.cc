// Pools asleep: their memory with others, their addresses kept, their contents saved.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

constexpr PoolId kWeights{0, 1};

class Sleep : public testing::OnDevice {
 protected:
  // Blocks of a pool in the home and in windows, each filled with its number; others between them.
  void fill() {
    begin(kWeights);
    std::vector<DeviceAddress> gone;
    for (std::uint32_t i = 0; i < 10; ++i) {
      blocks.push_back(plain_alloc(2 * MiB + 4096 * i));
      gone.push_back(plain_alloc(4 * MiB));
    }
    end(kWeights);
    others.push_back(plain_alloc(3 * MiB));
    for (const DeviceAddress address : gone) free(address);
    begin(kWeights);
    blocks.push_back(plain_alloc(18 * MiB));  // of the pages that were freed: in a window
    end(kWeights);
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(gpu->memset_d32(0, blocks[i], 100 + i, 2 * MiB / 4, 0), DriverStatus::ok);
    }
    ASSERT_EQ(gpu->memset_d32(0, others[0], 7, 3 * MiB / 4, 0), DriverStatus::ok);
    ASSERT_GT(allocator->counters().windows.made, 0U);
  }
  DeviceAddress plain_alloc(std::uint64_t bytes) {
    DeviceAddress address = 0;
    EXPECT_EQ(allocator->alloc(bytes, 0, address), Status::ok) << allocator->last_failure();
    return address;
  }
  [[nodiscard]] bool intact() const {
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      std::vector<std::uint32_t> words(2 * MiB / 4);
      gpu->copy_to_host(0, words.data(), blocks[i], 2 * MiB, 0);
      const auto same = std::count(words.begin(), words.end(), 100 + i);
      if (static_cast<std::size_t>(same) != words.size()) return false;
    }
    return true;
  }
  void finish() {
    for (const DeviceAddress address : blocks) free(address);
    for (const DeviceAddress address : others) free(address);
    while (allocator->pool_users(kWeights) != 0) release(kWeights);
  }

  std::vector<DeviceAddress> blocks;
  std::vector<DeviceAddress> others;
};

TEST_F(Sleep, MemoryGoesAndComesBackAtTheSameAddresses) {
  start({.capacity = 128 * MiB, .keep_contents = true});
  fill();
  const std::uint64_t before = reserved();
  ASSERT_EQ(allocator->sleep_pool(kWeights, true), Status::ok);
  allocator->validate();
  EXPECT_LT(reserved(), before / 4);
  EXPECT_EQ(gpu->used_bytes(0), reserved());
  EXPECT_EQ(allocator->sleep_pool(kWeights, true), Status::invalid_argument);  // it sleeps
  // The device's memory is there for others meanwhile.
  const DeviceAddress other = plain_alloc(90 * MiB);
  EXPECT_EQ(allocator->wake_pool(kWeights), Status::out_of_memory);
  allocator->validate();
  free(other);
  EXPECT_EQ(allocator->trim(), Status::ok);
  begin(kWeights);
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(MiB, 0, none), Status::invalid_argument);
  EXPECT_THAT(allocator->last_failure(), HasSubstr("asleep"));
  end(kWeights);
  ASSERT_EQ(allocator->wake_pool(kWeights), Status::ok);
  allocator->validate();
  EXPECT_EQ(reserved(), before);
  EXPECT_TRUE(intact());
  EXPECT_EQ(allocator->wake_pool(kWeights), Status::ok);  // is awake
  finish();
}

// Access is given to neighbours at once, in the home and in a window, and not page by page.
TEST_F(Sleep, NeighboursWakeTogether) {
  start({.capacity = 128 * MiB});
  fill();
  ASSERT_EQ(allocator->sleep_pool(kWeights, false), Status::ok);
  const std::uint64_t before = calls(DriverCall::mem_set_access);
  ASSERT_EQ(allocator->wake_pool(kWeights), Status::ok);
  EXPECT_EQ(calls(DriverCall::mem_set_access), before + 2);  // the home's, and the window's
  finish();
}

// The host reads the contents: after all work that writes them, whatever stream that is on.
TEST_F(Sleep, WorkInFlightIsDoneFirst) {
  start({.capacity = 128 * MiB, .keep_contents = true});
  fill();
  for (const DeviceAddress address : blocks) {
    ASSERT_EQ(allocator->record_stream(address, side), Status::ok);
    gpu->order(0, 0, side);
    write(address, 512, side, 1000000000);
  }
  ASSERT_EQ(allocator->sleep_pool(kWeights, true), Status::ok);
  ASSERT_EQ(allocator->wake_pool(kWeights), Status::ok);
  finish();
}

// All of the device is there for the same process too, again and again.
TEST_F(Sleep, LeavesRoomForOthers) {
  start({.capacity = 128 * MiB});
  for (std::uint64_t i = 2; i <= 4; ++i) {
    begin({0, i});
    others.push_back(plain_alloc(120 * MiB));
    end({0, i});
    ASSERT_EQ(allocator->sleep_pool({0, i}, false), Status::ok);
  }
  free(plain_alloc(127 * MiB));
  EXPECT_EQ(allocator->trim(), Status::ok);
  ASSERT_EQ(allocator->wake_pool({0, 2}), Status::ok);
  finish();
  for (std::uint64_t i = 2; i <= 4; ++i) release({0, i});
}

// Its blocks in a window go, the window stays until the pool wakes or goes too.
TEST_F(Sleep, MemoryMayBeGivenBackMeanwhile) {
  for (const bool wakes : {false, true}) {
    start({.capacity = 128 * MiB});
    fill();
    ASSERT_EQ(allocator->sleep_pool(kWeights, false), Status::ok);
    free(blocks.back());  // the one in a window
    blocks.pop_back();
    free(others.back());
    others.pop_back();
    EXPECT_EQ(allocator->trim(), Status::ok);
    allocator->validate();
    if (wakes) {
      ASSERT_EQ(allocator->wake_pool(kWeights), Status::ok);
    }
    finish();
    blocks.clear();
    EXPECT_EQ(allocator->trim(), Status::ok);
    EXPECT_EQ(reserved(), 0U);
    testing::OnDevice::TearDown();
  }
}

// What is free in a pool without users is everyone's, but not what has no memory.
TEST_F(Sleep, WhatIsFreeAsleepIsNotForOthers) {
  start({.capacity = 128 * MiB});
  begin(kWeights);
  const DeviceAddress gone = plain_alloc(8 * MiB);
  const DeviceAddress stays = plain_alloc(8 * MiB);
  end(kWeights);
  ASSERT_EQ(allocator->sleep_pool(kWeights, false), Status::ok);
  free(gone);
  while (allocator->pool_users(kWeights) != 0) release(kWeights);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(allocator->trim_pool(kWeights), Status::ok);
  const DeviceAddress other = alloc(6 * MiB);
  EXPECT_NE(other, gone);
  free(other);
  EXPECT_EQ(allocator->wake_pool(kWeights), Status::ok);
  free(stays);
}

TEST_F(Sleep, BlocksMayBeFreedAsleep) {
  start({.capacity = 128 * MiB, .keep_contents = true});
  fill();
  ASSERT_EQ(allocator->sleep_pool(kWeights, false), Status::ok);
  free(blocks.back());
  blocks.pop_back();
  free(blocks.front());
  blocks.erase(blocks.begin());
  ASSERT_EQ(allocator->wake_pool(kWeights), Status::ok);
  allocator->validate();
  ASSERT_EQ(allocator->sleep_pool(kWeights, false), Status::ok);
  finish();  // all that is left, while it sleeps
  allocator->validate();
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 0U);
}

TEST_F(Sleep, WhatWasFreedAsleepIsNotBroughtBack) {
  start({.capacity = 128 * MiB, .keep_contents = true});
  fill();
  ASSERT_EQ(allocator->sleep_pool(kWeights, true), Status::ok);
  free(blocks.back());  // in a window
  blocks.pop_back();
  free(blocks.front());
  blocks.erase(blocks.begin());
  const std::uint64_t copies = calls(DriverCall::copy_to_device);
  ASSERT_EQ(allocator->wake_pool(kWeights), Status::ok);
  EXPECT_EQ(calls(DriverCall::copy_to_device), copies + blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    std::uint32_t word = 0;
    gpu->copy_to_host(0, &word, blocks[i], sizeof word, 0);
    EXPECT_EQ(word, 101 + i);
  }
  finish();
}

// What a graph made it freed again: it writes there all the same, each time it runs.
TEST_F(Sleep, AGraphMayRunAfterIt) {
  constexpr PoolId kGraph{1, 0};
  start({.capacity = 32 * MiB});
  for (int i = 0; i < 16; ++i) others.push_back(plain_alloc(2 * MiB));
  for (std::size_t i = 0; i < others.size(); ++i) {
    free(others[i]);
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
  }
  begin(kGraph, {side});
  gpu->begin_capture(0, side);
  const DeviceAddress window = alloc(8 * MiB, side);
  free(window);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kGraph);
  ASSERT_EQ(allocator->report().windows, 1U);
  const std::uint64_t before = reserved();
  ASSERT_EQ(allocator->sleep_pool(kGraph, false), Status::ok);
  EXPECT_EQ(reserved(), before - 8 * MiB);
  ASSERT_EQ(allocator->wake_pool(kGraph), Status::ok);
  EXPECT_TRUE(gpu->resolve(0, window, 8 * MiB));
  gpu->replay(graph, third);
  EXPECT_THAT(gpu->violations(), ::testing::IsEmpty());
  release(kGraph);
  finish();
}

// Two streams' holes in one page, of a pool that is given up while it sleeps.
TEST_F(Sleep, PagesThatStreamsShareAreGivenUpAsleepToo) {
  start({.capacity = 64 * MiB, .keep_contents = true});
  begin(kWeights);
  const DeviceAddress a = plain_alloc(3 * MiB);
  DeviceAddress b = 0;
  ASSERT_EQ(allocator->alloc(3 * MiB, side, b), Status::ok);
  const DeviceAddress c = plain_alloc(2 * MiB);
  end(kWeights);
  ASSERT_EQ(allocator->sleep_pool(kWeights, false), Status::ok);
  EXPECT_EQ(reserved(), 0U);
  release(kWeights);
  for (const DeviceAddress address : {b, a, c}) free(address);
  const DeviceStatistics found = allocator->statistics();
  EXPECT_EQ(found.allocated_bytes.all.current, 0);
  EXPECT_EQ(found.inactive_split_bytes.all.current, 0);  // nothing is there that could be free
  const DeviceAddress d = plain_alloc(8 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  free(d);
}

TEST_F(Sleep, AnyCallMayFail) {
  for (const bool waking : {false, true}) {
    std::uint64_t failed = 0;
    for (std::uint64_t nth = 1;; nth += testing::sweep_stride()) {
      SCOPED_TRACE((waking ? "wake, call " : "sleep, call ") + std::to_string(nth));
      start({.capacity = 128 * MiB, .keep_contents = true});
      blocks.clear();
      others.clear();
      fill();
      if (waking) {
        ASSERT_EQ(allocator->sleep_pool(kWeights, true), Status::ok);
      }
      const std::uint64_t before = faults->fired();
      const std::uint64_t reserved_before = reserved();
      faults->fail({.kind = {}, .nth = nth, .status = DriverStatus::unknown, .persistent = false});
      const Status status =
          waking ? allocator->wake_pool(kWeights) : allocator->sleep_pool(kWeights, true);
      const bool fired = faults->fired() != before;
      faults->heal();
      allocator->validate();
      if (!waking && status != Status::ok) {
        // It is as awake as it was.
        EXPECT_TRUE(intact());
        EXPECT_EQ(reserved(), reserved_before);
      }
      if (!fired) {
        EXPECT_EQ(status, Status::ok);
      } else {
        ++failed;
      }
      ASSERT_EQ(allocator->wake_pool(kWeights), Status::ok);
      allocator->validate();
      EXPECT_TRUE(intact());
      finish();
      allocator.reset();
      ASSERT_EQ(gpu->leaks(), "");
      if (!fired) break;
    }
    EXPECT_GT(failed * testing::sweep_stride(), 20U);
  }
}

}  // namespace
}  // namespace gapless
