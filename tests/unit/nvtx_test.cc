// check:nvtx: at each moment a tool knows every mapping of the device as a heap, and the bytes of
// every live block as regions, and no others.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "allocator/driver/forwarding_driver.h"
#include "tests/support/nvtx_tool.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

using ::testing::ContainerEq;
using ::testing::IsEmpty;
using testing::NvtxTool;
using testing::ToldRange;

// Whether the tool lets the host touch what it touches, and how often it did.
class TouchSpy final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  DriverStatus memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                          std::uint64_t count, StreamHandle stream) override {
    look(address, count * sizeof value);
    return ForwardingDriver::memset_d32(device, address, value, count, stream);
  }
  DriverStatus copy_to_device(DeviceIndex device, DeviceAddress target, const void* source,
                              std::uint64_t bytes, StreamHandle stream) override {
    look(target, bytes);
    return ForwardingDriver::copy_to_device(device, target, source, bytes, stream);
  }
  DriverStatus copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                            std::uint64_t bytes, StreamHandle stream) override {
    look(source, bytes);
    return ForwardingDriver::copy_to_host(device, target, source, bytes, stream);
  }

  const NvtxTool* tool = nullptr;
  std::uint64_t touched = 0;

 protected:
  DriverStatus around(DriverCall /*kind*/, const Call& call) override { return call(); }

 private:
  void look(DeviceAddress address, std::uint64_t bytes) {
    ++touched;
    std::uint64_t known = 0;
    for (const ToldRange& region : tool->regions()) {
      const auto begin = std::max(address, region.address);
      const auto end = std::min(address + bytes, region.address + region.bytes);
      if (begin < end) known += end - begin;
    }
    EXPECT_EQ(known, bytes) << "the tool would report what gapless does itself";
  }
};

class Nvtx : public testing::OnDevice {
 protected:
  void SetUp() override {
    if (!NvtxTool::is_there()) GTEST_SKIP() << NvtxTool::kMissing;
    tool.emplace();
  }
  void TearDown() override {
    OnDevice::TearDown();
    if (!tool) return;
    EXPECT_EQ(tool->mistakes(), "");
    if (live.empty()) {
      EXPECT_THAT(tool->heaps(), IsEmpty());
    }
    EXPECT_THAT(tool->regions(), IsEmpty());
  }
  void start_told(const std::string& settings, testing::DeviceSetup setup = {}) {
    setup.settings = settings;
    start(setup);
    spy = std::make_unique<TouchSpy>(*counting);
    spy->tool = &*tool;
    DeviceProperties properties;
    gpu->device_properties(0, properties);
    allocator = std::make_unique<DeviceAllocator>(*spy, 0, properties, read_options(settings));
  }
  DeviceAddress take(std::uint64_t bytes, StreamHandle stream = 0) {
    DeviceAddress address = 0;
    if (allocator->alloc(bytes, stream, address) != Status::ok) return 0;
    live[address] = bytes;
    write(address, bytes, stream);
    judge();
    return address;
  }
  void drop(DeviceAddress address) {
    if (address == 0) return;
    live.erase(address);
    free(address);
    judge();
  }
  // What the tool is to know.
  [[nodiscard]] std::vector<ToldRange> mappings() const {
    std::vector<ToldRange> found;
    for (const auto& [address, mapping] : gpu->mappings()) {
      if (mapping.access != 0) found.push_back({address, mapping.bytes});
    }
    return found;
  }
  [[nodiscard]] static std::vector<ToldRange> in_common(
      const std::map<DeviceAddress, std::uint64_t>& blocks, const std::vector<ToldRange>& heaps) {
    std::vector<ToldRange> parts;
    for (const auto& [address, bytes] : blocks) {
      for (const ToldRange& heap : heaps) {
        const auto begin = std::max(address, heap.address);
        const auto end = std::min(address + bytes, heap.address + heap.bytes);
        if (begin < end) parts.push_back({begin, end - begin});
      }
    }
    return parts;
  }
  void judge() {
    ASSERT_THAT(tool->heaps(), ContainerEq(mappings()));
    ASSERT_THAT(tool->regions(), ContainerEq(in_common(live, tool->heaps())));
    ASSERT_EQ(tool->mistakes(), "");
    for (const auto& [address, bytes] : live) {
      most_parts = std::max(most_parts, in_common({{address, bytes}}, tool->heaps()).size());
    }
  }
  // Blocks that come and go, on two streams, so that windows are made, extended, repaired, evicted.
  void run_random(int count, bool trims = true) {
    std::vector<DeviceAddress> blocks;
    for (int i = 0; i < count; ++i) {
      const StreamHandle stream = draw() % 4 == 0 ? side : 0;
      const std::uint64_t largest = draw() % 3 == 0 ? 8 * MiB : 64 * KiB;
      blocks.push_back(take(1 + draw() % largest, stream));
      if (blocks.back() == 0) blocks.pop_back();
      if (!blocks.empty() && draw() % 5 == 0) {
        (void)allocator->record_stream(blocks[draw() % blocks.size()], stream == 0 ? side : 0);
      }
      gpu->advance(100000);
      if (trims && draw() % 40 == 0) {
        (void)allocator->trim(draw() % (32 * MiB));
        judge();
      }
      while (blocks.size() > 8) {
        const std::size_t leaving = draw() % blocks.size();
        drop(std::exchange(blocks[leaving], blocks.back()));
        blocks.pop_back();
      }
      if (HasFatalFailure()) return;
    }
    for (const DeviceAddress address : blocks) drop(address);
  }
  [[nodiscard]] bool knows(DeviceAddress address, std::uint64_t bytes) const {
    std::uint64_t known = 0;
    for (const ToldRange& region : tool->regions()) {
      const auto begin = std::max(address, region.address);
      const auto end = std::min(address + bytes, region.address + region.bytes);
      if (begin < end) known += end - begin;
    }
    return known == bytes;
  }

  std::optional<NvtxTool> tool;
  std::unique_ptr<TouchSpy> spy;
  std::map<DeviceAddress, std::uint64_t> live;  // requested bytes
  std::size_t most_parts = 0;                   // that a block had
};

constexpr const char* kFewWindows = "window_factor:0,window_floor:0";

TEST_F(Nvtx, BlocksAreRegionsAndMappingsAreHeaps) {
  start_told(std::string("check:nvtx,") + kFewWindows);
  run_random(1500);
  const WindowCounters windows = allocator->counters().windows;
  EXPECT_GT(windows.made, 0U);
  EXPECT_GT(windows.extended, 0U);
  EXPECT_GT(windows.evicted, 0U);
  EXPECT_GT(most_parts, 2U);
  EXPECT_EQ(allocator->trim(0), Status::ok);
  judge();
  EXPECT_THAT(tool->heaps(), IsEmpty());
}

TEST_F(Nvtx, SegmentsAreHeapsWithoutVirtualMemory) {
  start_told("check:nvtx", {.has_vmm = false});
  DeviceAddress a = 0;
  DeviceAddress b = 0;
  ASSERT_EQ(allocator->alloc(1000, 0, a), Status::ok);
  ASSERT_EQ(allocator->alloc(30 * MiB, 0, b), Status::ok);
  std::uint64_t bytes = 0;
  for (const ToldRange& heap : tool->heaps()) bytes += heap.bytes;
  EXPECT_EQ(bytes, reserved());
  EXPECT_THAT(tool->regions(), ContainerEq(in_common({{a, 1000}, {b, 30 * MiB}}, tool->heaps())));
  EXPECT_TRUE(knows(a, 1000) && knows(b, 30 * MiB));
  free(a);
  free(b);
  EXPECT_THAT(tool->regions(), IsEmpty());
  EXPECT_EQ(allocator->trim(0), Status::ok);
  EXPECT_THAT(tool->heaps(), IsEmpty());
}

TEST_F(Nvtx, NothingIsToldUnlessAskedFor) {
  start({.settings = "check:poison+redzones,fence:1/2"});
  for (int i = 0; i < 10; ++i) free(alloc(1 * MiB));
  EXPECT_EQ(tool->calls(), 0U);
}

TEST_F(Nvtx, RegionsAreNamedAfterTheirCallSites) {
  start_told("check:nvtx");
  const DeviceAddress nobodys = take(3 * KiB);
  EXPECT_EQ(tool->name_at(nobodys), format_bytes(3 * KiB));
  allocator->set_call_site_source([] { return std::string("train.py:42 (step)"); });
  const DeviceAddress steps = take(3 * MiB);
  for (const ToldRange& part : in_common({{steps, 3 * MiB}}, tool->heaps())) {
    EXPECT_EQ(tool->name_at(part.address), "train.py:42 (step)");
  }
  drop(nobodys);
  drop(steps);
}

// A kernel that was started before the free is not to be reported.
TEST_F(Nvtx, FreesWaitForTheDevice) {
  start_told("check:nvtx");
  const DeviceAddress block = take(MiB, side);
  write(block, MiB, side, 50'000'000);
  drop(block);
  EXPECT_LE(gpu->work_end_ns(0), gpu->now_ns());
}

TEST_F(Nvtx, GoesWithTheOtherChecks) {
  start_told(std::string("check:nvtx+poison+redzones,fence:1/4,") + kFewWindows,
             {.capacity = 128 * MiB, .keep_contents = true});
  run_random(200);
  EXPECT_GT(spy->touched, 100U);
  const DeviceAddress block = take(1000);
  const unsigned char byte = 0x55;
  gpu->copy_to_device(0, block + 1000, &byte, 1, 0);
  allocator->check_now();
  EXPECT_EQ(allocator->mistakes_found(), 1U);
  judge();
  drop(block);
}

TEST_F(Nvtx, AComparerMayReadWhatIsFree) {
  start_told("check:nvtx+poison", {.keep_contents = true});
  bool asked = false;
  allocator->set_memory_comparer(
      [&](DeviceAddress begin, std::uint64_t bytes, std::uint32_t, StreamHandle, Difference&) {
        asked = true;
        EXPECT_TRUE(knows(begin, bytes));
        return true;
      });
  drop(take(8 * MiB));
  drop(take(8 * MiB));
  EXPECT_TRUE(asked);
}

TEST_F(Nvtx, PoolsThatSleepHaveNoRegions) {
  start_told(std::string("check:nvtx,") + kFewWindows, {.keep_contents = true});
  const PoolId pool{0, 1};
  begin(pool);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(take(3 * MiB));
  end(pool);
  const DeviceAddress other = take(5 * MiB);
  ASSERT_EQ(allocator->sleep_pool(pool, true), Status::ok);
  judge();
  EXPECT_FALSE(knows(blocks[0], 3 * MiB));
  EXPECT_TRUE(knows(other, 5 * MiB));
  ASSERT_EQ(allocator->wake_pool(pool), Status::ok);
  judge();
  EXPECT_TRUE(knows(blocks[0], 3 * MiB));
  for (const DeviceAddress address : blocks) drop(address);
  drop(other);
  release(pool);
}

TEST_F(Nvtx, WhatGraphsMayUseStaysKnownUntilTheirPoolGoes) {
  start_told("check:nvtx");
  const PoolId graphs{1, 0};
  begin(graphs, {side});
  gpu->begin_capture(0, side);
  const DeviceAddress first = take(4 * MiB, side);
  live.erase(first);
  free(first);
  EXPECT_TRUE(knows(first, 4 * MiB)) << "the graph writes there when it is run";
  const DeviceAddress second = alloc(MiB, side);
  EXPECT_EQ(second, first) << "it takes a part of that";
  const simgpu::CapturedGraph graph = gpu->end_capture(side);
  end(graphs);
  EXPECT_TRUE(knows(first, 4 * MiB));
  EXPECT_TRUE(knows(second, MiB));
  free(second);
  EXPECT_TRUE(knows(first, 4 * MiB));
  const DeviceAddress other = alloc(MiB);
  gpu->replay(graph, 0);
  free(other);
  EXPECT_TRUE(knows(first, 4 * MiB));
  ASSERT_EQ(allocator->sleep_pool(graphs, false), Status::ok);
  EXPECT_THAT(tool->regions(), IsEmpty());
  ASSERT_EQ(allocator->wake_pool(graphs), Status::ok);
  EXPECT_TRUE(knows(first, 4 * MiB));
  gpu->replay(graph, 0);
  release(graphs);
  EXPECT_THAT(tool->regions(), IsEmpty());
  EXPECT_EQ(tool->mistakes(), "");
}

TEST_F(Nvtx, WhatIsFreedInACaptureGoesWithTheNextFree) {
  start_told("check:nvtx");
  const DeviceAddress before = take(MiB);
  const DeviceAddress after = take(MiB);
  const PoolId graphs{1, 0};
  begin(graphs, {side});
  gpu->begin_capture(0, side);
  live.erase(before);
  free(before);
  EXPECT_TRUE(knows(before, MiB)) << "nobody could wait for work on it";
  (void)gpu->end_capture(side);
  end(graphs);
  drop(after);
  release(graphs);
}

TEST_F(Nvtx, MemoryOfTheUsersOwnAllocatorIsNotTold) {
  start_told("check:nvtx");
  const PoolId pool{0, 1};
  ASSERT_EQ(allocator->retain_pool(pool), Status::ok);
  ASSERT_EQ(allocator->set_pool_source(
                pool, {[&](std::uint64_t bytes) {
                         DeviceAddress address = 0;
                         gpu->mem_alloc(0, bytes, address);
                         return address;
                       },
                       [&](DeviceAddress address, std::uint64_t) { gpu->mem_free(0, address); }}),
            Status::ok);
  begin(pool);
  const DeviceAddress block = alloc(MiB);
  end(pool);
  EXPECT_THAT(tool->regions(), IsEmpty());
  EXPECT_THAT(tool->heaps(), IsEmpty());
  free(block);
  release(pool);
  release(pool);
}

TEST_F(Nvtx, BlocksOfARestoredStateAreKnown) {
  start_told("check:nvtx");
  const PoolId pool{0, 1};
  begin(pool);
  const DeviceAddress block = take(3 * MiB);
  end(pool);
  const PoolState state = allocator->checkpoint_pool(pool);
  drop(block);
  PoolDelta delta;
  ASSERT_EQ(allocator->restore_pool(state, delta), Status::ok);
  ASSERT_THAT(delta.allocated, ::testing::ElementsAre(block));
  live[block] = 3 * MiB;
  judge();
  drop(block);
  release(pool);
}

TEST_F(Nvtx, PinnedBlocksStayKnown) {
  for (const char* const settings : {"check:nvtx", "check:nvtx+fence"}) {
    start_told(settings);
    const DeviceAddress block = take(MiB);
    ASSERT_EQ(allocator->pin(block), Status::ok);
    live.erase(block);
    free(block);
    EXPECT_TRUE(knows(block, MiB)) << settings;
    ASSERT_EQ(allocator->unpin(block), Status::ok);
    judge();
    EXPECT_FALSE(knows(block, MiB)) << settings;
    OnDevice::TearDown();
  }
}

TEST_F(Nvtx, BlocksAtAnAddressAreKnown) {
  start_told("check:nvtx");
  const DeviceAddress block = take(3 * MiB);
  drop(block);
  ASSERT_EQ(allocator->alloc_at(2 * MiB, 0, block), Status::ok);
  live[block] = 2 * MiB;
  judge();
  drop(block);
}

TEST_F(Nvtx, OtherDevicesChangeNothing) {
  start_told("check:nvtx", {.devices = 2});
  const DeviceAddress block = take(5 * MiB);
  ASSERT_EQ(allocator->add_peer(1), Status::ok);
  judge();
  const DeviceAddress another = take(25 * MiB);
  drop(block);
  drop(another);
}

TEST_F(Nvtx, LiveBlocksStayKnownWhenTheAllocatorGoes) {
  start_told("check:nvtx");
  const DeviceAddress block = take(MiB);
  allocator = nullptr;
  EXPECT_TRUE(knows(block, MiB)) << "its memory is still there";
  gpu = nullptr;  // which would tell of a leak
  tool.reset();
}

// A tool may take no heap; what is there is then memory as any other, for it.
TEST_F(Nvtx, ToolsMayRefuse) {
  for (const std::uint64_t one_of : {1, 2, 7}) {
    start({.settings = std::string("check:nvtx+poison,") + kFewWindows, .keep_contents = true});
    tool->refuse(one_of);
    std::vector<DeviceAddress> blocks;
    for (int i = 0; i < 150; ++i) {
      DeviceAddress address = 0;
      if (allocator->alloc(1 + draw() % (6 * MiB), 0, address) == Status::ok) {
        blocks.push_back(address);
      }
      if (blocks.size() > 7) {
        const std::size_t leaving = draw() % blocks.size();
        free(std::exchange(blocks[leaving], blocks.back()));
        blocks.pop_back();
      }
      if (one_of == 1) {
        ASSERT_THAT(tool->heaps(), IsEmpty());
      }
      ASSERT_EQ(tool->mistakes(), "");
    }
    EXPECT_LT(tool->heaps().size(), mappings().size());
    for (const DeviceAddress address : blocks) free(address);
    EXPECT_THAT(tool->regions(), IsEmpty());
    OnDevice::TearDown();
    EXPECT_THAT(tool->heaps(), IsEmpty());
  }
}

// Whatever call fails, the tool knows what is mapped and what is live. (A block with a fence that
// the driver would not unmap is known, too.)
TEST_F(Nvtx, FailedCallsAreNotTold) {
  for (const bool persistent : {false, true}) {
    std::uint64_t nth = 1;
    for (bool fired = true; fired; nth += nth < 60 ? 1 : 7) {
      start_told(std::string("check:nvtx,") + kFewWindows);
      draw.seed(3);
      faults->fail({.nth = nth, .status = DriverStatus::unknown, .persistent = persistent});
      run_random(40);
      if (HasFatalFailure()) FAIL() << "call " << nth << (persistent ? " and all later" : "");
      fired = faults->fired() != 0;
      faults->heal();
      drop(take(20 * MiB));
      (void)allocator->trim(0);
      judge();
      OnDevice::TearDown();
      ASSERT_THAT(tool->heaps(), IsEmpty()) << "call " << nth;
    }
    EXPECT_GT(nth, 100U);
  }
}

}  // namespace
}  // namespace gapless
