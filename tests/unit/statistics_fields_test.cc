// Every figure of the statistics, before and after each reset, told by hand.
//
//   what happens                          allocated   reserved   holes       all in halves of 1 MiB
//   ten pages, half of them freed, a
//   window over two; all freed, trimmed   0           0          0
//   small 1, large 6, small 2             9           12         3
//   the large one is freed                3           12         9
//   the small 2 too; a stream uses it     1           12         11          active: 3
#include <array>

#include "tests/support/expected_statistics.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

constexpr std::uint64_t kHalfMiB = 512 * KiB;

class StatisticsFields : public testing::OnDevice {
 protected:
  // Calls f(name, stat) for each of the three stats of each figure.
  template <class F>
  void for_each(F&& f) const {
    testing::for_each_stat(allocator->statistics(), f);
  }
  using Four = std::array<std::int64_t, 4>;  // current, peak, allocated, freed
  static void expect(const char* name, const Stat& stat, const Four& expected,
                     std::int64_t unit = static_cast<std::int64_t>(kHalfMiB)) {
    const Four found = {stat.current, stat.peak, stat.allocated, stat.freed};
    Four wanted = expected;
    for (std::int64_t& figure : wanted) figure *= unit;
    EXPECT_EQ(found, wanted) << name;
  }
  static void expect_pools(const char* name, const PoolStat& stat, const Four& all,
                           const Four& small, const Four& large,
                           std::int64_t unit = static_cast<std::int64_t>(kHalfMiB)) {
    SCOPED_TRACE(name);
    expect("all", stat.all, all, unit);
    expect("small pool", stat.small_pool, small, unit);
    expect("large pool", stat.large_pool, large, unit);
  }

  // Ten pages, a window over two of them; then nothing.
  void rise_and_fall() {
    allocator->set_limit_bytes(20 * MiB);
    std::vector<DeviceAddress> pages;
    for (int i = 0; i < 10; ++i) pages.push_back(alloc(4 * kHalfMiB));
    for (std::size_t i = 0; i < 10; i += 2) free(pages[i]);
    const DeviceAddress window = alloc(8 * kHalfMiB);
    ASSERT_EQ(allocator->report().windows, 1U);
    free(window);
    for (std::size_t i = 1; i < 10; i += 2) free(pages[i]);
    ASSERT_EQ(allocator->trim(), Status::ok);
  }
};

TEST_F(StatisticsFields, EveryOneBeforeAndAfterEachReset) {
  start({.capacity = 64 * MiB});
  rise_and_fall();
  const DeviceAddress small = alloc(kHalfMiB);
  const DeviceAddress large = alloc(6 * kHalfMiB);
  const DeviceAddress used = alloc(2 * kHalfMiB);
  free(large);
  ASSERT_EQ(allocator->record_stream(used, side), Status::ok);
  gpu->order(0, 0, side);
  write(used, 2 * kHalfMiB, side, 1'000'000'000);
  free(used);
  free(alloc(kHalfMiB));
  DeviceStatistics found = allocator->statistics();
  expect_pools("allocation", found.allocation, {1, 10, 15, 14}, {1, 2, 3, 2}, {0, 10, 12, 12}, 1);
  expect_pools("allocated", found.allocated_bytes, {1, 40, 58, 57}, {1, 3, 4, 3}, {0, 40, 54, 54});
  expect_pools("active", found.active, {2, 10, 15, 13}, {2, 3, 3, 1}, {0, 10, 12, 12}, 1);
  expect_pools("active bytes", found.active_bytes, {3, 40, 58, 55}, {3, 4, 4, 1}, {0, 40, 54, 54});
  expect_pools("requested", found.requested_bytes, {3, 40, 58, 55}, {3, 4, 4, 1}, {0, 40, 54, 54});
  expect_pools("reserved", found.reserved_bytes, {12, 40, 52, 40}, {1, 3, 4, 3}, {11, 40, 55, 44});
  expect_pools("segment", found.segment, {1, 2, 3, 2}, {}, {1, 2, 3, 2}, 1);
  expect_pools("hole bytes", found.inactive_split_bytes, {11, 40, 109, 98}, {}, {11, 40, 109, 98});
  EXPECT_GT(found.inactive_split.all.peak, found.inactive_split.all.current);
  for_each([](const std::string& name, const Stat& stat) {
    EXPECT_EQ(stat.allocated - stat.freed, stat.current) << name;
  });

  // What was there at the reset is the peak from then on; nothing else changes.
  allocator->reset_peak_statistics();
  for_each([](const std::string& name, const Stat& stat) {
    EXPECT_EQ(stat.peak, stat.current) << name;
    EXPECT_EQ(stat.allocated - stat.freed, stat.current) << name;
  });
  expect("hole bytes", allocator->statistics().inactive_split_bytes.all, {11, 11, 109, 98});

  // What comes and goes is counted from there.
  allocator->reset_accumulated_statistics();
  for_each([](const std::string& name, const Stat& stat) {
    EXPECT_EQ(stat.peak, stat.current) << name;
    EXPECT_EQ(stat.allocated, 0) << name;
    EXPECT_EQ(stat.freed, 0) << name;
  });
  gpu->advance(2'000'000'000);
  const DeviceAddress last = alloc(kHalfMiB);  // sees that the other stream is done
  found = allocator->statistics();
  expect_pools("allocated", found.allocated_bytes, {2, 2, 1, 0}, {2, 2, 1, 0}, {});
  expect_pools("active", found.active, {2, 2, 1, 1}, {2, 2, 1, 1}, {}, 1);
  expect_pools("active bytes", found.active_bytes, {2, 3, 1, 2}, {2, 3, 1, 2}, {});
  expect_pools("requested", found.requested_bytes, {2, 3, 1, 2}, {2, 3, 1, 2}, {});
  expect_pools("reserved", found.reserved_bytes, {12, 12, 0, 0}, {2, 2, 1, 0}, {10, 11, 0, 1});
  expect_pools("segment", found.segment, {1, 1, 0, 0}, {}, {1, 1, 0, 0}, 1);
  expect("hole bytes", found.inactive_split_bytes.all, {10, 11, 0, 1});
  free(last);
  free(small);
  ASSERT_EQ(allocator->trim(), Status::ok);
  found = allocator->statistics();
  expect_pools("allocated", found.allocated_bytes, {0, 2, 1, 2}, {0, 2, 1, 2}, {});
  expect_pools("reserved", found.reserved_bytes, {0, 12, 0, 12}, {0, 2, 1, 2}, {0, 12, 2, 13});
  expect_pools("segment", found.segment, {0, 1, 0, 1}, {}, {0, 1, 0, 1}, 1);
  expect("hole bytes", found.inactive_split_bytes.all, {0, 12, 2, 13});
  EXPECT_EQ(found.inactive_split.all.current, 0);
}

TEST_F(StatisticsFields, RetriesOutOfMemoryAndSyncsAreCounted) {
  start({.capacity = 16 * MiB, .settings = "windows:off"});
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(alloc(2 * MiB, i % 4 == 0 ? side : 0));
  for (std::size_t i = 0; i < 8; i += 2) free(blocks[i]);
  const auto counts = [&] {
    const DeviceStatistics found = allocator->statistics();
    return std::array{found.num_alloc_retries, found.num_ooms, found.num_sync_all_streams};
  };
  const std::array<std::int64_t, 3> none{};
  EXPECT_EQ(counts(), none);
  // Enough is free, though not in one piece: the host waits before it gives up.
  EXPECT_EQ(try_alloc(4 * MiB), Status::out_of_memory);
  EXPECT_EQ(counts(), (std::array<std::int64_t, 3>{1, 1, 0}));
  EXPECT_EQ(try_alloc(20 * MiB), Status::out_of_memory);  // which no waiting would help
  EXPECT_EQ(counts(), (std::array<std::int64_t, 3>{1, 2, 0}));
  EXPECT_EQ(allocator->trim(8 * MiB), Status::ok);
  EXPECT_EQ(counts(), (std::array<std::int64_t, 3>{1, 2, 1}));
  EXPECT_EQ(allocator->statistics().num_device_alloc, 8);
  EXPECT_EQ(allocator->statistics().num_device_free, 4);
  allocator->reset_accumulated_statistics();
  EXPECT_EQ(counts(), none);
  free(alloc(2 * MiB));
  for (std::size_t i = 1; i < 8; i += 2) free(blocks[i]);
}

// PyTorch's kSmallSize: a small block has at most so much.
TEST_F(StatisticsFields, ABlockOfOneMiBIsSmall) {
  start();
  const DeviceAddress small = alloc(MiB);
  const DeviceAddress large = alloc(MiB + 1);
  const DeviceStatistics found = allocator->statistics();
  EXPECT_EQ(found.allocated_bytes.small_pool.current, static_cast<std::int64_t>(MiB));
  EXPECT_EQ(found.allocated_bytes.large_pool.current, static_cast<std::int64_t>(MiB + 512));
  EXPECT_EQ(found.requested_bytes.large_pool.current, static_cast<std::int64_t>(MiB + 1));
  free(small);
  free(large);
}

// What rounding loses is kept in 32 bits: a request is rounded up by that much at most.
TEST_F(StatisticsFields, RoundingIsKeptWithin32Bits) {
  start({.capacity = 32 * GiB, .settings = "page_size:1GiB"});
  for (const std::uint64_t rounded : {3 * GiB, 4 * GiB, 5 * GiB, 9 * GiB}) {
    DeviceAddress address = 0;
    ASSERT_EQ(allocator->alloc(1000, 0, address, rounded), Status::ok);
    allocator->validate();
    EXPECT_EQ(allocator->statistics().requested_bytes.all.current, 1000);
    EXPECT_EQ(allocator->find_block(address)->requested_bytes, 1000U);
    EXPECT_GE(*allocator->size_of(address), std::min(rounded, 4 * GiB - 512));
    free(address);
    EXPECT_EQ(allocator->statistics().requested_bytes.all.current, 0);
  }
}

}  // namespace
}  // namespace gapless
