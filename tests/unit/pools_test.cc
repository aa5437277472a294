// Private pools and captured graphs.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr PoolId kPool{0, 1};
constexpr PoolId kOther{0, 2};

class PoolsTest : public testing::OnDevice {};

TEST_F(PoolsTest, APoolHasItsOwnMemoryAgain) {
  start();
  begin(kPool);
  const DeviceAddress a = alloc(4 * MiB);
  free(a);
  EXPECT_EQ(alloc(4 * MiB), a);
  EXPECT_EQ(reserved(), 4 * MiB);
  EXPECT_EQ(allocator->pool_live_bytes(kPool), 4 * MiB);
  end(kPool);
  const DeviceAddress b = alloc(4 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(allocator->pool_live_bytes(kPool), 4 * MiB);
  free(a);
  free(b);
  begin(kPool);
  EXPECT_EQ(alloc(4 * MiB), a);
  end(kPool);
  free(a);
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
  const DeviceAddress c = alloc(4 * MiB);  // lent: b keeps the pool
  EXPECT_EQ(c, a);
  EXPECT_EQ(allocator->owed_to_pools().size(), 1U);
  free(b);
  EXPECT_TRUE(allocator->owed_to_pools().empty());
  free(c);
  free(alloc(8 * MiB));
  EXPECT_EQ(reserved(), 8 * MiB);
}

TEST_F(PoolsTest, ABegunPoolStaysWithoutUsers) {
  start();
  begin(kPool);
  free(alloc(4 * MiB));
  release(kPool);  // its only user
  const DeviceAddress a = alloc(2 * MiB);
  EXPECT_EQ(allocator->find_block(a)->pool, kPool);
  free(a);
  EXPECT_EQ(allocator->pool_users(kPool), 0);
  end(kPool);
  free(alloc(4 * MiB));
  EXPECT_EQ(reserved(), 4 * MiB);  // everyone's now
}

TEST_F(PoolsTest, UseOnOomLendsWhatIsFree) {
  start({.capacity = 8 * MiB});
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

// Two requests of different pools may need what neither has.
TEST_F(PoolsTest, APoolsMemoryAndEveryonesAreJoined) {
  start({.capacity = 32 * MiB});
  begin(kPool);
  std::vector<DeviceAddress> kept;
  std::vector<DeviceAddress> gone;
  for (int i = 0; i < 8; ++i) (i % 2 == 0 ? gone : kept).push_back(alloc(2 * MiB));
  end(kPool);
  for (int i = 0; i < 8; ++i) (i % 2 == 0 ? gone : kept).push_back(alloc(2 * MiB));
  for (const DeviceAddress address : gone) free(address);
  ASSERT_EQ(reserved(), 32 * MiB);
  begin(kPool);
  const DeviceAddress a = alloc(16 * MiB);
  end(kPool);
  free(a);
  for (const DeviceAddress address : kept) free(address);
  release(kPool);
  release(kPool);
}

// What is free in the pool, too little for a request, is not left idle beside new pages.
TEST_F(PoolsTest, APoolsMemorySparesNewPages) {
  start({.capacity = 64 * MiB, .settings = ""});
  begin(kPool);
  std::vector<DeviceAddress> kept;
  std::vector<DeviceAddress> gone;
  for (int i = 0; i < 8; ++i) (i % 2 == 0 ? gone : kept).push_back(alloc(2 * MiB));
  for (const DeviceAddress address : gone) free(address);
  ASSERT_EQ(reserved(), 16 * MiB);
  const DeviceAddress a = alloc(12 * MiB);  // 8 MiB are free
  EXPECT_EQ(reserved(), 20 * MiB);
  EXPECT_EQ(allocator->find_block(a)->pool, kPool);
  end(kPool);
  free(a);
  for (const DeviceAddress address : kept) free(address);
  release(kPool);
}

// What everyone has free and fits is taken as it is.
TEST_F(PoolsTest, APoolTakesAHoleOfEveryonesAsItIs) {
  start({.capacity = 64 * MiB, .settings = ""});
  free(alloc(12 * MiB));
  begin(kPool, {side});
  const DeviceAddress small = alloc(3 * MiB, side);
  free(small);
  end(kPool);
  begin(kPool, {0});
  const std::uint64_t made = allocator->counters().windows.made;
  free(alloc(8 * MiB, 0));
  EXPECT_EQ(allocator->counters().windows.made, made);
  end(kPool);
  release(kPool);
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
  const std::uint64_t before = calls(DriverCall::device_synchronize);
  const DeviceAddress c = alloc(8 * MiB, 0);
  EXPECT_EQ(calls(DriverCall::device_synchronize), before + 1);
  EXPECT_EQ(reserved(), 8 * MiB);
  free(c);
}

TEST_F(PoolsTest, NothingForbiddenIsCalledWhileCapturing) {
  start({.capacity = 256 * MiB, .settings = "stream_budget:0"});
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

// What the graph's order proves done may be had again by another stream of the capture.
TEST_F(PoolsTest, BranchesOfOneCaptureReuseEachOthersMemoryInTheGraphsOrder) {
  start();
  const std::vector<StreamHandle> all = {side, third};
  begin(kPool, all);
  gpu->begin_capture(0, side);
  const DeviceAddress a = alloc(4 * MiB, side);
  gpu->order(0, side, third);  // third joins, after a's kernel
  free(a);
  const DeviceAddress b = alloc(4 * MiB, third);
  EXPECT_EQ(b, a);  // comes after a's kernel in the graph
  const DeviceAddress c = alloc(4 * MiB, side);
  free(b);
  const DeviceAddress d = alloc(4 * MiB, side);
  EXPECT_NE(d, b);  // side does not come after b's kernel
  gpu->order(0, third, side);
  const DeviceAddress e = alloc(4 * MiB, side);
  EXPECT_EQ(e, b);  // now it does
  EXPECT_EQ(reserved(), 12 * MiB);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kPool);
  gpu->replay(graph, 0);
  gpu->replay(graph, 0);
  gpu->device_synchronize(0);
  for (const DeviceAddress address : {c, d, e}) free(address);
  release(kPool);
}

TEST_F(PoolsTest, ABlockThatTwoBranchesUseIsReusedAfterBoth) {
  start();
  begin(kPool, {side, third});
  gpu->begin_capture(0, side);
  const DeviceAddress a = alloc(4 * MiB, side);
  gpu->order(0, side, third);
  EXPECT_EQ(allocator->record_stream(a, third), Status::ok);
  write(a, 4 * MiB, third);
  free(a);
  const DeviceAddress b = alloc(4 * MiB, side);
  EXPECT_NE(b, a);  // third may not be done with it
  gpu->order(0, third, side);
  const DeviceAddress c = alloc(4 * MiB, side);
  EXPECT_EQ(c, a);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kPool);
  gpu->replay(graph, third);
  gpu->device_synchronize(0);
  free(b);
  free(c);
  release(kPool);
}

// third frees early; then it takes over what another branch freed. Who comes after the early free
// only does not come after that.
TEST_F(PoolsTest, MemoryTakenOverIsNotAsOldAsItsNewOwnersFrees) {
  start();
  StreamHandle other = 0;
  gpu->stream_create(0, other);
  begin(kPool, {side, third, other});
  gpu->begin_capture(0, side);
  const DeviceAddress first = alloc(512, side);
  gpu->order(0, side, third);
  gpu->order(0, side, other);
  free(alloc(2 * MiB, third));
  gpu->order(0, third, side);
  const DeviceAddress large = alloc(8 * MiB, other);
  free(large);
  gpu->order(0, other, third);
  const DeviceAddress taken = alloc(4 * MiB, third);
  EXPECT_EQ(taken + 2 * MiB, large);  // joined with its own
  const DeviceAddress mine = alloc(4 * MiB, side);
  EXPECT_GE(mine, large + 8 * MiB);  // not the rest of it
  gpu->order(0, third, side);
  gpu->order(0, other, side);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kPool);
  gpu->replay(graph, 0);
  gpu->device_synchronize(0);
  for (const DeviceAddress address : {first, taken, mine}) free(address);
  release(kPool);
}

// A block from before the capture has uses that the graph does not show.
TEST_F(PoolsTest, WhatWasThereBeforeTheCaptureProvesNothing) {
  start();
  begin(kPool, {side, third});
  const DeviceAddress before = alloc(4 * MiB, side);
  gpu->begin_capture(0, side);
  const DeviceAddress a = alloc(2 * MiB, side);
  gpu->order(0, side, third);
  free(before);
  const DeviceAddress b = alloc(4 * MiB, third);
  EXPECT_NE(b, before);
  gpu->order(0, third, side);
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(kPool);
  gpu->replay(graph, 0);
  gpu->device_synchronize(0);
  free(a);
  free(b);
  release(kPool);
}

// --- pools of whole pages, and over another allocator --------------------------------------------

TEST_F(PoolsTest, BlocksOfANoSplitPoolShareNoPage) {
  start({.settings = "share:fd"});
  const DeviceAddress general = alloc(MiB);
  std::vector<DeviceAddress> gone;
  for (int i = 0; i < 6; ++i) gone.push_back(alloc(3 * MiB));
  for (int i = 0; i < 6; i += 2) free(gone[i]);  // scattered pages, and parts of pages
  begin(kPool);
  EXPECT_EQ(allocator->set_pool_no_split(kPool, true), Status::ok);
  EXPECT_EQ(allocator->set_pool_no_split(kOther, true), Status::invalid_argument);
  std::vector<DeviceAddress> blocks;
  for (const std::uint64_t bytes : {512 * KiB, 3 * MiB, 2 * MiB, 5 * MiB, 512 * KiB}) {
    blocks.push_back(alloc(bytes));
    EXPECT_EQ(blocks.back() % (2 * MiB), 0U);
    EXPECT_EQ(*allocator->size_of(blocks.back()) % (2 * MiB), 0U);
    SharedBlock shared;  // whole handles, that nobody else has a part of
    EXPECT_EQ(allocator->share(blocks.back(), shared), Status::ok);
    EXPECT_EQ(shared.offset_bytes, 0U);
    EXPECT_EQ(shared.bytes, shared.pieces.size() * 2 * MiB);
    EXPECT_EQ(allocator->unshare(blocks.back()), Status::ok);
  }
  EXPECT_EQ(allocator->set_pool_no_split(kPool, true), Status::invalid_argument);  // too late
  const DeviceAddress first = blocks[1];
  free(first);
  EXPECT_EQ(alloc(4 * MiB), first);
  end(kPool);
  for (const DeviceAddress address : blocks) free(address);
  for (int i = 1; i < 6; i += 2) free(gone[i]);
  free(general);
  release(kPool);
}

TEST_F(PoolsTest, TheLimitCountsTheUsersOwnAllocatorToo) {
  start({.capacity = 64 * MiB, .settings = "limit:16MiB"});
  const PoolSource source{
      [&](std::uint64_t bytes) {
        DeviceAddress address = 0;
        return gpu->mem_alloc(0, bytes, address) == DriverStatus::ok ? address : 0;
      },
      [&](DeviceAddress address, std::uint64_t /*bytes*/) { gpu->mem_free(0, address); }};
  EXPECT_EQ(allocator->retain_pool(kPool), Status::ok);
  EXPECT_EQ(allocator->set_pool_source(kPool, source), Status::ok);
  const DeviceAddress general = alloc(8 * MiB);
  begin(kPool);
  const DeviceAddress own = alloc(6 * MiB);
  EXPECT_EQ(try_alloc(4 * MiB), Status::out_of_memory);
  end(kPool);
  EXPECT_EQ(try_alloc(4 * MiB), Status::out_of_memory);
  EXPECT_EQ(reserved(), 14 * MiB);
  allocator->set_limit_bytes(24 * MiB);
  begin(kPool);
  const DeviceAddress more = alloc(4 * MiB);
  end(kPool);
  const DeviceAddress last = alloc(6 * MiB);
  EXPECT_EQ(reserved(), 24 * MiB);
  for (const DeviceAddress address : {general, own, more, last}) free(address);
  for (int i = 0; i < 3; ++i) release(kPool);
}

TEST_F(PoolsTest, APoolMayStandOnTheUsersOwnAllocator) {
  start({.capacity = 64 * MiB});
  std::map<DeviceAddress, std::uint64_t> given;
  bool empty = false;
  const PoolSource source{[&](std::uint64_t bytes) {
                            DeviceAddress address = 0;
                            if (!empty && gpu->mem_alloc(0, bytes, address) == DriverStatus::ok) {
                              given[address] = bytes;
                            }
                            return address;
                          },
                          [&](DeviceAddress address, std::uint64_t bytes) {
                            EXPECT_EQ(given.at(address), bytes);
                            given.erase(address);
                            gpu->mem_free(0, address);
                          }};
  EXPECT_EQ(allocator->set_pool_source(kPool, source), Status::invalid_argument);
  EXPECT_EQ(allocator->retain_pool(kPool), Status::ok);
  EXPECT_EQ(allocator->set_pool_source(kPool, source), Status::ok);
  EXPECT_EQ(allocator->set_pool_source(kPool, source), Status::invalid_argument);
  const DeviceAddress general = alloc(4 * MiB);
  EXPECT_TRUE(given.empty());
  begin(kPool);
  const DeviceAddress a = alloc(3 * MiB);
  const DeviceAddress b = alloc(MiB, side);
  EXPECT_EQ(given.size(), 1U);  // both in one segment of 4 MiB
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(allocator->record_stream(b, third), Status::ok);
  write(b, MiB, side);
  EXPECT_EQ(*allocator->size_of(a), 3 * MiB);
  EXPECT_EQ(allocator->pool_live_bytes(kPool), 4 * MiB);
  free(a);
  EXPECT_EQ(alloc(3 * MiB), a);
  gpu->begin_capture(0, side);
  const DeviceAddress c = alloc(6 * MiB, side);
  simgpu::CapturedGraph graph = gpu->end_capture(side);
  EXPECT_EQ(given.size(), 2U);
  empty = true;
  EXPECT_EQ(try_alloc(8 * MiB), Status::out_of_memory);
  EXPECT_THAT(allocator->last_failure(), HasSubstr("a pool's own allocator"));
  end(kPool);
  const PoolState state = allocator->checkpoint_pool(kPool);
  free(c);
  PoolDelta delta;
  EXPECT_EQ(allocator->restore_pool(state, delta), Status::ok);
  EXPECT_EQ(delta.allocated, std::vector<DeviceAddress>{c});
  EXPECT_EQ(allocator->sleep_pool(kPool, true), Status::invalid_argument);
  gpu->replay(graph, 0);
  std::uint64_t live = 0;
  for (const BlockReport& piece : allocator->report().home) {
    if (piece.kind == BlockReport::Kind::live && piece.pool == kPool) live += piece.bytes;
  }
  EXPECT_EQ(live, 10 * MiB);
  release(kPool);
  release(kPool);
  for (const DeviceAddress address : {a, b, c}) free(address);
  EXPECT_TRUE(given.empty());  // all given back, after the device was waited for
  EXPECT_EQ(reserved(), 4 * MiB);
  free(general);
}

}  // namespace
}  // namespace gapless
