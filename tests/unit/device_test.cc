#include <cstdlib>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/device/allocator.h"
#include "allocator/device/options.h"
#include "allocator/device/statistics.h"
#include "allocator/driver/counting_driver.h"
#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::uint64_t kPageBytes = 2 * MiB;

// --- options -------------------------------------------------------------------------------------

TEST(Options, EveryOneIsReadAndPrinted) {
  Options options;
  std::string error;
  for (const OptionFacts& facts : option_table()) {
    EXPECT_FALSE(facts.help.empty()) << facts.name;
    EXPECT_EQ(option_text(options, facts.name), facts.default_text);
    EXPECT_TRUE(set_option(options, facts.name, facts.default_text, error)) << error;
  }
}

TEST(Options, ListsAreParsed) {
  std::vector<std::string> warnings;
  const Options options =
      parse_options(" page_size:8MiB, copies_slack:2.5% ,windows:off,window_factor:0,", warnings);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(options.page_size, 8 * MiB);
  EXPECT_EQ(options.copies_slack, 2.5);
  EXPECT_FALSE(options.windows);
  EXPECT_EQ(options.window_factor, 0U);
  EXPECT_TRUE(options.edge_sharing);
}

TEST(Options, UnknownKeyNamesTheNearest) {
  std::vector<std::string> warnings;
  const Options options = parse_options("pagesize:4MiB,limit:3GiB", warnings);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("\"page_size\"")));
  EXPECT_EQ(options.limit, 3 * GiB);  // the rest is taken
}

TEST(Options, WrongValuesAreExplainedAndChangeNothing) {
  std::vector<std::string> warnings;
  const Options options = parse_options(
      "page_size:3MiB,limit:lots,copies_slack:-1,windows:maybe,window_factor:1.5,nonsense",
      warnings);
  EXPECT_EQ(warnings.size(), 6U);
  EXPECT_EQ(options.page_size, Options{}.page_size);
  EXPECT_EQ(options.limit, Options{}.limit);
  EXPECT_THAT(warnings[0], HasSubstr("power of two"));
}

TEST(Options, WhatWasOneInEarlierVersionsIsPassedOver) {
  std::vector<std::string> warnings;
  const Options options =
      parse_options("slack:0.9,frames_from:2GiB,limit:3GiB,frames_per_request:16", warnings);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(options.limit, 3 * GiB);
  EXPECT_THAT(passed_over(" slack:0.9,limit:3GiB,,frames_from:2GiB"),
              ElementsAre("slack", "frames_from"));
}

TEST(Options, WhatIsAskedForIsNotLeftOut) {
  EXPECT_EQ(read_options("limit:3GiB").limit, 3 * GiB);
  try {
    (void)read_options("limit:14XiB,copies_slack:2,pge_size:4MiB", "--conf");
    FAIL() << "read";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), StartsWith("--conf: option limit: \"14XiB\": expected a size"));
    EXPECT_THAT(error.what(), HasSubstr("; unknown option \"pge_size\""));
  }
  setenv("GAPLESS_CONF", "pge_size:4MiB,copies_slack:2", 1);
  EXPECT_THROW((void)options_from_environment(), InputError);
  setenv("GAPLESS_CONF", "copies_slack:2", 1);
  EXPECT_EQ(options_from_environment().copies_slack, 2);
  unsetenv("GAPLESS_CONF");
  EXPECT_EQ(options_from_environment().copies_slack, Options{}.copies_slack);
}

// --- statistics ----------------------------------------------------------------------------------

TEST(Statistics, KeepCurrentPeakAllocatedAndFreed) {
  StatisticsKeeper keeper;
  keeper.on_alloc(true, 1024, 1000);
  keeper.on_alloc(false, 4 * MiB, 4 * MiB - 5);
  keeper.on_free(true, 1024, 1000);
  keeper.on_alloc(false, 2 * MiB, 2 * MiB);
  const DeviceStatistics found = keeper.read(HoleTally{});
  EXPECT_EQ(found.allocation.all.current, 2);
  EXPECT_EQ(found.allocation.all.allocated, 3);
  EXPECT_EQ(found.allocation.all.freed, 1);
  EXPECT_EQ(found.allocation.small_pool.peak, 1);
  EXPECT_EQ(found.allocated_bytes.all.current, static_cast<std::int64_t>(6 * MiB));
  EXPECT_EQ(found.allocated_bytes.all.peak, static_cast<std::int64_t>(6 * MiB));
  EXPECT_EQ(found.requested_bytes.all.current, static_cast<std::int64_t>(6 * MiB - 5));
  EXPECT_EQ(found.requested_bytes.small_pool.freed, 1000);
  // The peak of all is no sum of the pools' peaks.
  EXPECT_EQ(found.allocated_bytes.small_pool.peak + found.allocated_bytes.large_pool.peak,
            found.allocated_bytes.all.peak + 1024);
}

TEST(Statistics, ResetsAsPyTorchDoes) {
  StatisticsKeeper keeper;
  keeper.on_alloc(false, 100 * MiB, 100 * MiB);
  keeper.on_alloc(false, 4 * MiB, 4 * MiB);
  keeper.on_free(false, 100 * MiB, 100 * MiB);
  keeper.reset_peak();
  keeper.reset_accumulated({});
  Stat bytes = keeper.read(HoleTally{}).allocated_bytes.all;
  EXPECT_EQ(bytes.peak, static_cast<std::int64_t>(4 * MiB));
  EXPECT_EQ(bytes.allocated, 0);
  EXPECT_EQ(bytes.freed, 0);
  keeper.on_free(false, 4 * MiB, 4 * MiB);
  bytes = keeper.read(HoleTally{}).allocated_bytes.all;
  EXPECT_EQ(bytes.freed, static_cast<std::int64_t>(4 * MiB));
  EXPECT_EQ(bytes.current, 0);
}

TEST(Statistics, HolesCountFromTheLastReset) {
  StatisticsKeeper keeper;
  keeper.reset_accumulated({.current = 3, .peak = 5, .made = 10});
  const Stat holes = keeper.read({.current = 4, .peak = 6, .made = 12}).inactive_split.all;
  EXPECT_EQ(holes.current, 4);
  EXPECT_EQ(holes.peak, 6);
  EXPECT_EQ(holes.allocated, 2);
  EXPECT_EQ(holes.freed, 1);
}

TEST(Statistics, ReservedIsSharedOutByPool) {
  StatisticsKeeper keeper;
  keeper.set_reserved(10 * MiB, 10 * MiB);
  keeper.on_alloc(true, MiB, MiB);
  keeper.on_alloc(false, 4 * MiB, 4 * MiB);
  const DeviceStatistics found = keeper.read(HoleTally{});
  EXPECT_EQ(found.reserved_bytes.small_pool.current, static_cast<std::int64_t>(MiB));
  EXPECT_EQ(found.reserved_bytes.large_pool.current, static_cast<std::int64_t>(9 * MiB));
  EXPECT_EQ(found.reserved_bytes.all.current, static_cast<std::int64_t>(10 * MiB));
  EXPECT_EQ(found.inactive_split_bytes.all.current, static_cast<std::int64_t>(5 * MiB));
}

// --- the device allocator
// --------------------------------------------------------------------------

class Device : public ::testing::Test {
 protected:
  void start(const Options& options = {}, std::uint64_t capacity = 64 * MiB, bool vmm = true) {
    gpu = std::make_unique<simgpu::SimDriver>(
        simgpu::SimOptions{.devices = {{.total_bytes = capacity, .has_vmm = vmm}}});
    counting = std::make_unique<CountingDriver>(*gpu);
    DeviceProperties properties;
    gpu->device_properties(0, properties);
    allocator = std::make_unique<DeviceAllocator>(*counting, 0, properties, options);
  }
  DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream = 0) {
    DeviceAddress address = 0;
    EXPECT_EQ(allocator->alloc(bytes, stream, address), Status::ok) << allocator->last_failure();
    allocator->validate();
    return address;
  }
  void free(DeviceAddress address) {
    EXPECT_EQ(allocator->free(address), Status::ok);
    allocator->validate();
  }
  std::uint64_t reserved() const {
    return static_cast<std::uint64_t>(allocator->statistics().reserved_bytes.all.current);
  }
  ~Device() override {
    allocator.reset();
    if (gpu) {
      EXPECT_THAT(gpu->violations(), IsEmpty());
    }
  }

  std::unique_ptr<simgpu::SimDriver> gpu;
  std::unique_ptr<CountingDriver> counting;
  std::unique_ptr<DeviceAllocator> allocator;
};

TEST_F(Device, MakesNoDriverCallUntilMemoryIsAskedFor) {
  start();
  EXPECT_EQ(counting->counts().total(), 0U);
  DeviceAddress address = 1;
  EXPECT_EQ(allocator->alloc(0, 0, address), Status::ok);
  EXPECT_EQ(address, 0U);
  EXPECT_EQ(allocator->free(0), Status::ok);
  EXPECT_EQ(counting->counts().total(), 0U);
}

TEST_F(Device, PacksSmallBlocksInOnePage) {
  start();
  const DeviceAddress a = alloc(1);
  const DeviceAddress b = alloc(513);
  EXPECT_EQ(b - a, 512U);
  EXPECT_EQ(allocator->size_of(b), 1024U);
  EXPECT_EQ(reserved(), kPageBytes);
  free(a);
  EXPECT_EQ(alloc(100), a);
  EXPECT_EQ(allocator->free(b + 512), Status::invalid_argument);
  EXPECT_FALSE(allocator->size_of(b + 512));
}

// Six 4 MiB blocks, every other one freed: a 12 MiB request finds the memory but no hole.
TEST_F(Device, JoinsScatteredPagesInAWindowAndKeepsIt) {
  start();
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(alloc(4 * MiB));
  for (int i = 0; i < 6; i += 2) free(blocks[static_cast<std::size_t>(i)]);
  const DriverCallCounts before = counting->counts();
  const DeviceAddress joined = alloc(12 * MiB);
  EXPECT_EQ(reserved(), 24 * MiB);
  const DriverCallCounts made = counting->counts().since(before);
  EXPECT_EQ(made.of(DriverCall::mem_create), 0U);
  EXPECT_EQ(made.of(DriverCall::mem_map), 6U);
  EXPECT_EQ(made.of(DriverCall::mem_set_access), 1U);
  EXPECT_EQ(allocator->counters().windows.made, 1U);
  free(joined);
  const DriverCallCounts after = counting->counts();
  EXPECT_EQ(alloc(12 * MiB), joined);  // the same window, at no cost
  EXPECT_EQ(counting->counts().since(after).total(), 0U);
  free(joined);
  // A smaller request takes part of it; another the rest.
  const DeviceAddress part = alloc(8 * MiB);
  const DeviceAddress rest = alloc(4 * MiB);
  EXPECT_EQ(counting->counts().since(after).total(), 0U);
  free(part);
  free(rest);
}

TEST_F(Device, EdgesOfPartlyUsedPagesServeWindows) {
  Options options;
  start(options, 8 * MiB);
  const DeviceAddress a = alloc(3 * MiB);
  const DeviceAddress pin = alloc(2 * MiB);
  const DeviceAddress b = alloc(3 * MiB);
  free(a);
  free(b);
  // Free: 3 MiB, 2 MiB used, 3 MiB; two whole pages, and one half to each side of the block.
  const DeviceAddress joined = alloc(6 * MiB);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_TRUE(gpu->resolve(0, joined, 6 * MiB));
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(512, 0, none), Status::out_of_memory);
  free(joined);
  free(pin);
}

TEST_F(Device, WithoutEdgesOrWindowsItFailsWhereItSays) {
  Options options;
  options.edge_sharing = false;
  start(options, 8 * MiB);
  const DeviceAddress a = alloc(3 * MiB);
  alloc(2 * MiB - 512);
  const DeviceAddress b = alloc(3 * MiB);
  free(a);
  free(b);
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(6 * MiB, 0, none), Status::out_of_memory);
  EXPECT_THAT(allocator->last_failure(), HasSubstr("asked for 6.00 MiB"));
  EXPECT_THAT(allocator->last_failure(),
              HasSubstr("the largest request that would fit without new memory is 4.00 MiB"));
  alloc(4 * MiB);
}

TEST_F(Device, WhatIsWholePagesLongBeginsWithOne) {
  start({}, 64 * MiB);
  const DeviceAddress bias = alloc(16 << 10);
  const DeviceAddress weight = alloc(20 * MiB);
  EXPECT_EQ(weight, bias + (16 << 10));  // while new memory comes all lies side by side
  const DeviceAddress last = alloc(2 * MiB);
  free(weight);
  const DeviceAddress gradient = alloc(16 * MiB);
  EXPECT_EQ(gradient, bias + 2 * MiB);
  EXPECT_EQ(alloc(64 << 10), bias + (16 << 10));  // small blocks take what is left before it
  free(gradient);
  EXPECT_EQ(allocator->report().free_page_bytes, 18 * MiB);
  // The last memory there is counts as new again.
  free(last);
  EXPECT_EQ(alloc(24 * MiB), bias + (80 << 10));
}

TEST_F(Device, APageIsFreeWhenItsFrameIs) {
  Options options;
  options.handle_parts = 64;
  start(options, 128 * MiB);
  const DeviceAddress first = alloc(2 * MiB);
  const DeviceAddress large = alloc(62 * MiB);  // page 1, 2 and 3 as one, ..., 30 and 31
  EXPECT_EQ(gpu->resolve(0, large, 62 * MiB)->size(), 16U);
  free(large);
  EXPECT_EQ(allocator->report().free_page_bytes, 62 * MiB);
  const DeviceAddress block = alloc(2 * MiB + 512);  // page 1 and a little of 2
  EXPECT_EQ(block, large);
  EXPECT_EQ(allocator->report().free_page_bytes, 56 * MiB);
  free(block);
  free(first);
}

TEST_F(Device, WholePagesBeginWithAPieceOnlyWhereTheyEndWithOne) {
  Options options;
  options.handle_parts = 64;
  start(options, 128 * MiB);
  alloc(2 * MiB);
  const DeviceAddress large = alloc(62 * MiB);  // page 1, 2 and 3 as one, ..., 30 and 31
  alloc(32 * MiB);
  free(large);
  EXPECT_EQ(alloc(2 * MiB), large);
  EXPECT_EQ(alloc(2 * MiB), large + 2 * MiB);
  EXPECT_EQ(alloc(512 * KiB), large + 4 * MiB);
  EXPECT_EQ(alloc(2 * MiB), large + 9 * MiB / 2);  // in page 4 alone it would cut 4 and 5
  EXPECT_EQ(alloc(4 * MiB), large + 10 * MiB);     // 6 and 7
}

TEST_F(Device, WhatIsLoadedComesInLargerPieces) {
  Options options;
  options.handle_parts = 64;
  start(options, 4096 * MiB);
  const auto pieces = [&](std::uint64_t bytes) {
    return gpu->resolve(0, alloc(bytes), bytes)->size();
  };
  EXPECT_EQ(pieces(64 * MiB), 16U);  // of 32 pages: pieces of two
  EXPECT_EQ(pieces(64 * MiB), 8U);   // of 64: of four
  EXPECT_EQ(pieces(2 * MiB), 1U);    // of four, and all of it comes
  EXPECT_EQ(reserved(), 136 * MiB);
  EXPECT_EQ(pieces(6 * MiB), 1U);  // the rest of it
  EXPECT_EQ(reserved(), 136 * MiB);
  EXPECT_EQ(pieces(376 * MiB), 13U);  // of 256: of 16, but of 4 and 8 before
  EXPECT_EQ(pieces(512 * MiB), 16U);
}

TEST_F(Device, WhatIsMadeAndFreedComesInSmallerPieces) {
  Options options;
  options.handle_parts = 64;
  start(options, 4096 * MiB);
  const auto pieces = [&](std::uint64_t bytes) {
    return gpu->resolve(0, alloc(bytes), bytes)->size();
  };
  EXPECT_EQ(pieces(256 * MiB), 16U);
  free(alloc(16 * MiB));
  free(alloc(16 * MiB));
  EXPECT_EQ(pieces(144 * MiB), 33U);  // of 200 pages: of two; 16 MiB are in one piece already
  EXPECT_EQ(reserved(), 400 * MiB);
}

TEST_F(Device, WhatComesAheadIsNoMoreThanThereIs) {
  Options options;
  options.handle_parts = 2;
  start(options, 72 * MiB);
  alloc(64 * MiB);
  alloc(8 * MiB);  // a piece of 16 pages would begin here
  EXPECT_EQ(reserved(), 72 * MiB);
}

// What was set later was not known to who grows.
TEST_F(Device, WhatComesAheadStaysBelowTheSoftLimit) {
  const auto reserved_with = [&](std::uint64_t from_begin, std::uint64_t later) {
    Options options;
    options.handle_parts = 2;
    options.soft_limit = from_begin;
    start(options, 256 * MiB);
    const DeviceAddress first = alloc(64 * MiB);
    allocator->set_soft_limit_bytes(later);
    const DeviceAddress second = alloc(8 * MiB);
    const std::uint64_t bytes = reserved();
    free(first);
    free(second);
    allocator.reset();
    return bytes;
  };
  EXPECT_EQ(reserved_with(UINT64_MAX, UINT64_MAX), 96 * MiB);  // a whole piece of 16 pages
  EXPECT_EQ(reserved_with(80 * MiB, 80 * MiB), 72 * MiB);
  EXPECT_EQ(reserved_with(UINT64_MAX, 80 * MiB), 72 * MiB);
  EXPECT_EQ(reserved_with(80 * MiB, UINT64_MAX), 96 * MiB);
}

TEST_F(Device, ExtendsAWindowForALargerRequest) {
  Options options;
  start(options);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(alloc(2 * MiB));
  for (int i = 0; i < 10; i += 2) free(blocks[static_cast<std::size_t>(i)]);
  free(alloc(6 * MiB));
  const DriverCallCounts before = counting->counts();
  free(alloc(8 * MiB));
  EXPECT_EQ(counting->counts().since(before).of(DriverCall::mem_map), 1U);
  EXPECT_EQ(allocator->counters().windows.extended, 1U);
  EXPECT_EQ(allocator->counters().windows.made, 1U);
}

// Twenty of forty pages in a window; its third is in use when a request of a new size comes.
class DeviceRepair : public Device {
 protected:
  void make_window(std::uint32_t work_ns) {
    Options options;
    start(options, 256 * MiB);
    std::vector<DeviceAddress> blocks;
    for (int i = 0; i < 42; ++i) blocks.push_back(alloc(2 * MiB));
    for (int i = 0; i < 40; i += 2) free(blocks[static_cast<std::size_t>(i)]);
    const DeviceAddress window = alloc(40 * MiB);
    const simgpu::Access access{window, 40 * MiB, true};
    gpu->launch(0, 0, work_ns, {&access, 1});
    free(window);
    const DeviceAddress first = alloc(2 * MiB);
    const DeviceAddress second = alloc(2 * MiB);
    alloc(2 * MiB);
    free(first);
    free(second);
    free(blocks[41]);
    free(blocks[39]);
    gpu->advance(1000);
  }
};

TEST_F(DeviceRepair, ExchangesPagesForASizeNeverSeen) {
  make_window(1);
  const DriverCallCounts before = counting->counts();
  const DeviceAddress address = alloc(42 * MiB);
  const DriverCallCounts made = counting->counts().since(before);
  EXPECT_EQ(made.of(DriverCall::mem_create), 0U);
  EXPECT_EQ(made.of(DriverCall::mem_unmap), 1U);
  EXPECT_EQ(made.of(DriverCall::mem_map), 2U);
  EXPECT_EQ(made.of(DriverCall::mem_set_access), 1U);
  EXPECT_EQ(allocator->counters().windows.repaired, 1U);
  EXPECT_EQ(allocator->counters().windows.made, 1U);
  EXPECT_TRUE(gpu->resolve(0, address, 42 * MiB));
}

// The device has not finished with the window: its places stay as they are.
TEST_F(DeviceRepair, WaitsForWorkInFlight) {
  make_window(1'000'000'000);
  alloc(42 * MiB);
  EXPECT_EQ(allocator->counters().windows.repaired, 0U);
  EXPECT_EQ(allocator->counters().windows.made, 2U);
}

TEST_F(Device, TrimGivesFreePagesBackAndKeepsWhatIsAsked) {
  start();
  const DeviceAddress a = alloc(10 * MiB);
  const DeviceAddress b = alloc(4 * MiB);
  free(a);
  EXPECT_EQ(allocator->trim(8 * MiB), Status::ok);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(gpu->used_bytes(0), 8 * MiB);
  const DriverCallCounts before = counting->counts();
  EXPECT_EQ(allocator->trim(8 * MiB), Status::ok);  // no more is there: nobody waits for that
  EXPECT_EQ(counting->counts().since(before).total(), 0U);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 4 * MiB);
  const DeviceAddress c = alloc(10 * MiB);
  free(b);
  free(c);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 0U);
  EXPECT_EQ(allocator->statistics().num_device_free, 12);
}

TEST_F(Device, TrimTakesPagesOutOfWindowsInUse) {
  Options options;
  start(options);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(alloc(2 * MiB));
  for (int i = 0; i < 8; i += 2) free(blocks[static_cast<std::size_t>(i)]);
  const DeviceAddress whole = alloc(8 * MiB);
  free(whole);
  const DeviceAddress part = alloc(6 * MiB);
  EXPECT_EQ(part, whole);
  EXPECT_EQ(allocator->trim(), Status::ok);
  allocator->validate();
  EXPECT_EQ(reserved(), 14 * MiB);
  EXPECT_TRUE(gpu->resolve(0, part, 6 * MiB));
  free(part);
}

TEST_F(Device, LimitHoldsAndCanBeLifted) {
  Options options;
  options.limit = 8 * MiB;
  start(options);
  const DeviceAddress a = alloc(7 * MiB);
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(2 * MiB, 0, none), Status::out_of_memory);
  EXPECT_THAT(allocator->last_failure(), HasSubstr("limit 8.00 MiB"));
  EXPECT_EQ(allocator->statistics().num_ooms, 1);
  allocator->set_limit_bytes(16 * MiB);
  free(alloc(2 * MiB));
  free(a);
}

TEST_F(Device, PageSizeIsAnOption) {
  Options options;
  options.page_size = 8 * MiB;
  start(options);
  alloc(1);
  EXPECT_EQ(reserved(), 8 * MiB);
  EXPECT_EQ(counting->counts().of(DriverCall::mem_create), 1U);
}

TEST_F(Device, WorksWithoutVmm) {
  start({}, 64 * MiB, false);
  const DeviceAddress a = alloc(3 * MiB);
  const DeviceAddress b = alloc(MiB);
  EXPECT_EQ(reserved(), 4 * MiB);  // the second filled the first one's segment
  EXPECT_EQ(counting->counts().of(DriverCall::mem_alloc), 1U);
  EXPECT_EQ(counting->counts().of(DriverCall::mem_create), 0U);
  const DeviceAddress c = alloc(10 * MiB);
  free(a);
  free(b);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 10 * MiB);
  free(c);
}

TEST_F(Device, ReportTellsEverything) {
  Options options;
  start(options);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(alloc(2 * MiB));
  free(blocks[0]);
  free(blocks[2]);
  alloc(4 * MiB - 100);
  const HeapReport report = allocator->report();
  EXPECT_EQ(report.window_blocks.size(), 1U);
  EXPECT_EQ(report.window_blocks[0].requested_bytes, 4 * MiB - 100);
  EXPECT_EQ(report.windows, 1U);
  std::uint64_t lent = 0;
  std::uint64_t live = 0;
  for (const BlockReport& block : report.home) {
    if (block.kind == BlockReport::Kind::lent) lent += block.bytes;
    if (block.kind == BlockReport::Kind::live) live += block.bytes;
  }
  EXPECT_EQ(lent, 4 * MiB);
  EXPECT_EQ(live, 4 * MiB);
}

TEST_F(Device, AbsurdSizesAreRefused) {
  start();
  DeviceAddress address = 0;
  EXPECT_EQ(allocator->alloc(UINT64_MAX, 0, address), Status::out_of_memory);
  EXPECT_EQ(allocator->alloc(UINT64_MAX - 511, 0, address), Status::out_of_memory);
  EXPECT_EQ(allocator->alloc(TiB, 0, address), Status::out_of_memory);
  alloc(512);
}

TEST(Allocator, ServesSeveralDevices) {
  simgpu::SimDriver gpu({.devices = {{.total_bytes = 16 * MiB}, {.total_bytes = 32 * MiB}}});
  DriverStatus status = DriverStatus::unknown;
  {
    Allocator allocator(gpu, {}, status);
    ASSERT_EQ(status, DriverStatus::ok);
    EXPECT_EQ(allocator.devices(), 2);
    DeviceAddress a = 0;
    DeviceAddress b = 0;
    EXPECT_EQ(allocator.alloc(1, 30 * MiB, 0, a), Status::ok);
    EXPECT_EQ(allocator.alloc(0, 30 * MiB, 0, b), Status::out_of_memory);
    EXPECT_EQ(allocator.alloc(0, 10 * MiB, 0, b), Status::ok);
    EXPECT_EQ(allocator.alloc(2, 1, 0, b), Status::invalid_argument);
    EXPECT_EQ(gpu.used_bytes(0), 10 * MiB);
    EXPECT_EQ(allocator.free(a), Status::ok);
    EXPECT_EQ(allocator.free(a), Status::invalid_argument);
    EXPECT_EQ(allocator.free(b), Status::ok);
  }
  EXPECT_EQ(gpu.leaks(), "");
  EXPECT_THAT(gpu.violations(), IsEmpty());
}

}  // namespace
}  // namespace gapless
