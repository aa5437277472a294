// Private pools and captured graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"
#include "allocator/driver/counting_driver.h"
#include "allocator/driver/faulty_driver.h"
#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr PoolId kPool{0, 1};
constexpr PoolId kOther{0, 2};

class PoolsTest : public ::testing::Test {
 protected:
  void start(std::uint64_t capacity = 64 * MiB, const std::string& settings = "slack:0") {
    gpu = std::make_unique<simgpu::SimDriver>(
        simgpu::SimOptions{.devices = {{.total_bytes = capacity}}});
    counting = std::make_unique<CountingDriver>(*gpu);
    DeviceProperties properties;
    gpu->device_properties(0, properties);
    std::vector<std::string> warnings;
    allocator = std::make_unique<DeviceAllocator>(*counting, 0, properties,
                                                  parse_options(settings, warnings));
    gpu->stream_create(0, side);
    gpu->stream_create(0, third);
  }
  void TearDown() override {
    allocator.reset();
    EXPECT_EQ(gpu->leaks(), "");
    EXPECT_THAT(gpu->violations(), IsEmpty());
  }
  DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream = 0) {
    DeviceAddress address = 0;
    EXPECT_EQ(allocator->alloc(bytes, stream, address), Status::ok) << allocator->last_failure();
    allocator->validate();
    write(address, bytes, stream);
    return address;
  }
  void write(DeviceAddress address, std::uint64_t bytes, StreamHandle stream) {
    const simgpu::Access access{address, bytes, true};
    gpu->launch(0, stream, 100000, {&access, 1});
  }
  void free(DeviceAddress address) {
    EXPECT_EQ(allocator->free(address), Status::ok);
    allocator->validate();
  }
  void begin(PoolId id, std::vector<StreamHandle> streams = {}) {
    EXPECT_EQ(allocator->begin_pool(id,
                                    [streams](StreamHandle stream) {
                                      return streams.empty() ||
                                             std::find(streams.begin(), streams.end(), stream) !=
                                                 streams.end();
                                    }),
              Status::ok);
  }
  void end(PoolId id) { EXPECT_EQ(allocator->end_pool(id), Status::ok); }
  void release(PoolId id) { EXPECT_EQ(allocator->release_pool(id), Status::ok); }
  [[nodiscard]] std::uint64_t reserved() const {
    return static_cast<std::uint64_t>(allocator->statistics().reserved_bytes.all.current);
  }

  std::unique_ptr<simgpu::SimDriver> gpu;
  std::unique_ptr<CountingDriver> counting;
  std::unique_ptr<DeviceAllocator> allocator;
  StreamHandle side = 0;
  StreamHandle third = 0;
};

TEST_F(PoolsTest, WhatIsFreeInAPoolIsOnlyThePools) {
  start();
  begin(kPool);
  const DeviceAddress a = alloc(4 * MiB);
  free(a);
  EXPECT_EQ(alloc(4 * MiB), a);
  free(a);
  end(kPool);
  const DeviceAddress b = alloc(4 * MiB);
  EXPECT_NE(b, a);
  EXPECT_EQ(reserved(), 8 * MiB);
  begin(kPool);
  EXPECT_EQ(alloc(4 * MiB), a);
  end(kPool);
  EXPECT_EQ(allocator->pool_live_bytes(kPool), 4 * MiB);
  free(a);
  free(b);
  release(kPool);
  EXPECT_EQ(allocator->pool_users(kPool), 1);  // begun twice
  release(kPool);
  EXPECT_EQ(allocator->pool_users(kPool), 0);
  const DeviceAddress c = alloc(8 * MiB);  // everyone's again
  EXPECT_EQ(reserved(), 8 * MiB);
  free(c);
  EXPECT_EQ(allocator->release_pool(kPool), Status::invalid_argument);
  EXPECT_EQ(allocator->end_pool(kPool), Status::invalid_argument);
}

TEST_F(PoolsTest, APoolTakesFreeMemoryOfTheHome) {
  start();
  free(alloc(8 * MiB));
  begin(kPool);
  const DeviceAddress a = alloc(6 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  end(kPool);
  free(a);
  release(kPool);
}

TEST_F(PoolsTest, FiltersNestAndTheLastThatAppliesCounts) {
  start();
  begin(kPool);
  begin(kOther, {side});
  const DeviceAddress a = alloc(MiB, 0);
  const DeviceAddress b = alloc(2 * MiB, side);
  EXPECT_EQ(allocator->pool_live_bytes(kPool), MiB);
  EXPECT_EQ(allocator->pool_live_bytes(kOther), 2 * MiB);
  end(kPool);  // not in the order of their begins
  const DeviceAddress c = alloc(MiB, 0);
  const DeviceAddress d = alloc(2 * MiB, side);
  EXPECT_EQ(allocator->pool_live_bytes(kPool), MiB);
  EXPECT_EQ(allocator->pool_live_bytes(kOther), 4 * MiB);
  end(kOther);
  for (const DeviceAddress address : {a, b, c, d}) free(address);
  release(kPool);
  release(kOther);
}

TEST_F(PoolsTest, ReleasedWithBlocksItsMemoryComesWithTheLast) {
  start();
  begin(kPool);
  const DeviceAddress a = alloc(4 * MiB);
  const DeviceAddress b = alloc(4 * MiB);
  end(kPool);
  free(a);
  release(kPool);
  const DeviceAddress c = alloc(4 * MiB);
  EXPECT_NE(c, a);  // b keeps the pool
  free(b);
  EXPECT_EQ(alloc(8 * MiB), std::min(a, b));
  free(std::min(a, b));
  free(c);
}

TEST_F(PoolsTest, UseOnOomLendsWhatIsFree) {
  start(8 * MiB);
  begin(kPool);
  const DeviceAddress a = alloc(8 * MiB);
  end(kPool);
  free(a);
  DeviceAddress b = 0;
  EXPECT_EQ(allocator->alloc(8 * MiB, 0, b), Status::out_of_memory);
  EXPECT_EQ(allocator->set_pool_use_on_oom(kPool, true), Status::ok);
  EXPECT_EQ(alloc(8 * MiB), a);
  free(a);
  release(kPool);
  EXPECT_EQ(allocator->set_pool_use_on_oom(kPool, true), Status::invalid_argument);
}

TEST_F(PoolsTest, TrimLeavesAPoolItsMemory) {
  start();
  begin(kPool);
  const DeviceAddress a = alloc(4 * MiB);
  end(kPool);
  const DeviceAddress b = alloc(4 * MiB);
  free(a);
  free(b);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 4 * MiB);
  release(kPool);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 0U);
}

TEST_F(PoolsTest, ReportsNameThePool) {
  start();
  begin(kPool);
  const DeviceAddress a = alloc(MiB);
  end(kPool);
  const HeapReport report = allocator->report();
  const auto of_pool = [](const BlockReport& block) { return block.pool == kPool; };
  EXPECT_EQ(std::count_if(report.home.begin(), report.home.end(), of_pool), 1);
  free(a);
  release(kPool);
}

// --- graphs --------------------------------------------------------------------------------------

TEST_F(PoolsTest, AGraphsMemoryIsItsOwnWhileItLives) {
  start();
  begin(kPool, {side});
  gpu->begin_capture(0, side);
  const DeviceAddress a = alloc(4 * MiB, side);
  free(a);  // a temporary of the graph: it writes there with every replay
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kPool);
  const DeviceAddress b = alloc(4 * MiB, side);
  EXPECT_NE(b, a);
  gpu->replay(graph, third);
  gpu->replay(graph, third);
  free(b);
  release(kPool);
  // The graph may still run: its memory is for others only after the device was waited for.
  const std::uint64_t before = counting->counts().of(DriverCall::device_synchronize);
  const DeviceAddress c = alloc(8 * MiB, 0);
  EXPECT_EQ(counting->counts().of(DriverCall::device_synchronize), before + 1);
  EXPECT_EQ(reserved(), 8 * MiB);
  free(c);
}

TEST_F(PoolsTest, NothingForbiddenIsCalledWhileCapturing) {
  start(256 * MiB, "slack:0,stream_budget:0");
  const DeviceAddress eager = alloc(8 * MiB, 0);
  free(eager);
  begin(kPool, {side});
  gpu->begin_capture(0, side);
  std::vector<DeviceAddress> blocks;
  for (std::uint64_t i = 1; i <= 12; ++i) blocks.push_back(alloc(i * MiB + 512 * i, side));
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
  const DeviceAddress window = alloc(20 * MiB, side);
  // Others go on with their work.
  for (int i = 0; i < 40; ++i) free(alloc((1 + i % 7) * MiB, i % 2 == 0 ? 0 : third));
  EXPECT_EQ(allocator->trim(), Status::driver_error);  // would wait
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kPool);
  gpu->replay(graph, 0);
  free(window);
  for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i]);
  release(kPool);
}

TEST_F(PoolsTest, ACaptureTakesOnlyWhatIsDone) {
  start();
  const DeviceAddress running = alloc(4 * MiB, third);
  free(running);  // its kernel runs on while the capture begins
  begin(kPool, {side});
  gpu->begin_capture(0, side);
  const DeviceAddress a = alloc(4 * MiB, side);
  EXPECT_NE(a, running);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kPool);
  gpu->replay(graph, 0);
  free(a);
  release(kPool);
}

TEST_F(PoolsTest, GraphsThatShareAPoolShareItsMemory) {
  start();
  std::vector<simgpu::CapturedGraph> graphs;
  DeviceAddress first = 0;
  for (int i = 0; i < 3; ++i) {
    const StreamHandle stream = i == 1 ? third : side;
    begin(kPool, {stream});
    gpu->begin_capture(0, stream);
    const DeviceAddress a = alloc(16 * MiB, stream);
    if (i == 0) first = a;
    EXPECT_EQ(a, first);
    free(a);
    graphs.push_back(gpu->end_capture(stream));
    end(kPool);
  }
  EXPECT_EQ(reserved(), 16 * MiB);
  for (const simgpu::CapturedGraph& graph : graphs) gpu->replay(graph, 0);
  for (int i = 0; i < 3; ++i) release(kPool);
}

TEST_F(PoolsTest, AStreamOfACaptureDoesNotGetWhatAnotherOneUses) {
  start();
  begin(kPool, {side, third});
  gpu->begin_capture(0, side);
  const DeviceAddress a = alloc(4 * MiB, side);
  gpu->order(0, side, third);  // the other stream joins the capture
  write(a, 4 * MiB, third);
  EXPECT_EQ(allocator->record_stream(a, third), Status::ok);
  free(a);
  const DeviceAddress b = alloc(4 * MiB, side);  // nothing orders it after the other stream
  EXPECT_NE(b, a);
  gpu->order(0, third, side);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kPool);
  gpu->replay(graph, 0);
  free(b);
  release(kPool);
}

// --- sleep and wake ------------------------------------------------------------------------------

class Sleep : public PoolsTest {
 protected:
  void start_with_contents(std::uint64_t capacity) {
    start(capacity);
    gpu = std::make_unique<simgpu::SimDriver>(
        simgpu::SimOptions{.devices = {{.total_bytes = capacity}}, .keep_contents = true});
    faulty = std::make_unique<FaultyDriver>(*gpu);
    DeviceProperties properties;
    gpu->device_properties(0, properties);
    std::vector<std::string> warnings;
    allocator = std::make_unique<DeviceAllocator>(*faulty, 0, properties,
                                                  parse_options("slack:0", warnings));
  }
  // Blocks of a pool in the home and in windows, each filled with its number; others between them.
  void fill() {
    begin(kPool);
    std::vector<DeviceAddress> gone;
    for (std::uint32_t i = 0; i < 10; ++i) {
      blocks.push_back(plain_alloc(2 * MiB + 4096 * i));
      gone.push_back(plain_alloc(4 * MiB));
    }
    end(kPool);
    others.push_back(plain_alloc(3 * MiB));
    for (const DeviceAddress address : gone) free(address);
    begin(kPool);
    blocks.push_back(plain_alloc(18 * MiB));  // of the pages that were freed: in a window
    end(kPool);
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
    while (allocator->pool_users(kPool) != 0) release(kPool);
  }

  std::unique_ptr<FaultyDriver> faulty;
  std::vector<DeviceAddress> blocks;
  std::vector<DeviceAddress> others;
};

TEST_F(Sleep, MemoryGoesAndComesBackAtTheSameAddresses) {
  start_with_contents(128 * MiB);
  fill();
  const std::uint64_t before = reserved();
  ASSERT_EQ(allocator->sleep_pool(kPool, true), Status::ok);
  allocator->validate();
  EXPECT_LT(reserved(), before / 4);
  EXPECT_EQ(gpu->used_bytes(0), reserved());
  EXPECT_EQ(allocator->sleep_pool(kPool, true), Status::invalid_argument);  // it sleeps
  // The device's memory is there for others meanwhile.
  const DeviceAddress other = plain_alloc(90 * MiB);
  EXPECT_EQ(allocator->wake_pool(kPool), Status::out_of_memory);
  allocator->validate();
  free(other);
  EXPECT_EQ(allocator->trim(), Status::ok);
  begin(kPool);
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(MiB, 0, none), Status::invalid_argument);
  EXPECT_THAT(allocator->last_failure(), HasSubstr("asleep"));
  end(kPool);
  ASSERT_EQ(allocator->wake_pool(kPool), Status::ok);
  allocator->validate();
  EXPECT_EQ(reserved(), before);
  EXPECT_TRUE(intact());
  EXPECT_EQ(allocator->wake_pool(kPool), Status::ok);  // is awake
  finish();
}

TEST_F(Sleep, BlocksMayBeFreedAsleep) {
  start_with_contents(128 * MiB);
  fill();
  ASSERT_EQ(allocator->sleep_pool(kPool, false), Status::ok);
  free(blocks.back());
  blocks.pop_back();
  free(blocks.front());
  blocks.erase(blocks.begin());
  ASSERT_EQ(allocator->wake_pool(kPool), Status::ok);
  allocator->validate();
  ASSERT_EQ(allocator->sleep_pool(kPool, false), Status::ok);
  finish();  // all that is left, while it sleeps
  allocator->validate();
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 0U);
}

// Two streams' holes in one page, of a pool that is given up while it sleeps.
TEST_F(Sleep, PagesThatStreamsShareAreGivenUpAsleepToo) {
  start_with_contents(64 * MiB);
  StreamHandle other = 0;
  gpu->stream_create(0, other);
  begin(kPool);
  const DeviceAddress a = plain_alloc(3 * MiB);
  DeviceAddress b = 0;
  ASSERT_EQ(allocator->alloc(3 * MiB, other, b), Status::ok);
  const DeviceAddress c = plain_alloc(2 * MiB);
  end(kPool);
  ASSERT_EQ(allocator->sleep_pool(kPool, false), Status::ok);
  EXPECT_EQ(reserved(), 0U);
  release(kPool);
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
    for (std::uint64_t nth = 1;; ++nth) {
      SCOPED_TRACE((waking ? "wake, call " : "sleep, call ") + std::to_string(nth));
      start_with_contents(128 * MiB);
      blocks.clear();
      others.clear();
      fill();
      if (waking) {
        ASSERT_EQ(allocator->sleep_pool(kPool, true), Status::ok);
      }
      const std::uint64_t before = faulty->fired();
      faulty->fail({.kind = {}, .nth = nth, .status = DriverStatus::unknown, .persistent = false});
      const Status status =
          waking ? allocator->wake_pool(kPool) : allocator->sleep_pool(kPool, true);
      const bool fired = faulty->fired() != before;
      faulty->heal();
      allocator->validate();
      if (!fired) {
        EXPECT_EQ(status, Status::ok);
      } else {
        ++failed;
      }
      ASSERT_EQ(allocator->wake_pool(kPool), Status::ok);
      allocator->validate();
      EXPECT_TRUE(intact());
      finish();
      allocator.reset();
      ASSERT_EQ(gpu->leaks(), "");
      if (!fired) break;
    }
    EXPECT_GT(failed, 20U);
  }
}

// --- checkpoints ---------------------------------------------------------------------------------

TEST_F(PoolsTest, ARestoredPoolHasItsBlocksWhereTheyWere) {
  start(256 * MiB);
  begin(kPool);
  std::vector<DeviceAddress> blocks;
  for (std::uint64_t i = 1; i <= 10; ++i) blocks.push_back(alloc(i * MiB + 512 * i));
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
  const DeviceAddress window = alloc(18 * MiB);
  const PoolState state = allocator->checkpoint_pool(kPool);
  const std::vector<DeviceAddress> then = allocator->pool_blocks(kPool);
  EXPECT_EQ(then.size(), 6U);
  const std::int64_t allocated = allocator->statistics().allocated_bytes.all.current;
  const std::int64_t requested = allocator->statistics().requested_bytes.all.current;
  // Some go, others come where they were.
  free(window);
  free(blocks[3]);
  std::vector<DeviceAddress> fresh;
  for (std::uint64_t i = 1; i <= 8; ++i) fresh.push_back(alloc(3 * MiB + 4096 * i));
  PoolDelta delta;
  ASSERT_EQ(allocator->restore_pool(state, delta), Status::ok);
  allocator->validate();
  EXPECT_THAT(delta.freed, ::testing::UnorderedElementsAreArray(fresh));
  EXPECT_THAT(delta.allocated, ::testing::UnorderedElementsAre(window, blocks[3]));
  EXPECT_EQ(allocator->pool_blocks(kPool), then);
  EXPECT_EQ(allocator->statistics().allocated_bytes.all.current, allocated);
  EXPECT_EQ(allocator->statistics().requested_bytes.all.current, requested);
  EXPECT_EQ(allocator->size_of(window), 18 * MiB);
  PoolDelta nothing;
  EXPECT_EQ(allocator->restore_pool(state, nothing), Status::ok);
  EXPECT_TRUE(nothing.freed.empty() && nothing.allocated.empty());
  // To the empty pool and back.
  const PoolState empty{kPool, {}};
  PoolDelta all;
  EXPECT_EQ(allocator->restore_pool(empty, all), Status::ok);
  EXPECT_EQ(all.freed.size(), 6U);
  EXPECT_EQ(allocator->restore_pool(state, all), Status::ok);
  EXPECT_EQ(allocator->pool_blocks(kPool), then);
  end(kPool);
  for (const DeviceAddress address : then) free(address);
  release(kPool);
}

TEST_F(PoolsTest, APlaceThatIsTakenIsNotRestored) {
  start();
  begin(kPool);
  const DeviceAddress a = alloc(4 * MiB);
  const PoolState state = allocator->checkpoint_pool(kPool);
  free(a);
  end(kPool);
  release(kPool);
  EXPECT_EQ(alloc(4 * MiB), a);  // everyone's now
  begin(kPool);
  const DeviceAddress b = alloc(MiB);
  PoolDelta delta;
  EXPECT_EQ(allocator->restore_pool(state, delta), Status::invalid_argument);
  EXPECT_TRUE(delta.freed.empty());
  EXPECT_EQ(allocator->pool_blocks(kPool), std::vector<DeviceAddress>{b});
  EXPECT_EQ(allocator->restore_pool({kOther, {}}, delta), Status::invalid_argument);
  end(kPool);
  free(a);
  free(b);
  release(kPool);
}

}  // namespace
}  // namespace gapless
