// The report of a request that failed, made of a heap in which every kind of memory has a size that
// no other has, so that no figure can be another's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/report/out_of_memory.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

constexpr PoolId kAskedPool{0, 1};
constexpr PoolId kAnotherPool{0, 2};

HeapReport heap_of_all_kinds() {
  using Kind = BlockReport::Kind;
  HeapReport heap;
  heap.total_bytes = 1 * GiB;
  heap.limit_bytes = 600 * MiB;
  heap.page_bytes = 2 * MiB;
  heap.statistics.reserved_bytes.all.current = static_cast<std::int64_t>(512 * MiB);
  const auto piece = [&](Kind kind, std::uint64_t bytes, PoolId pool = {},
                         std::uint64_t free_page_bytes = 0) {
    BlockReport report;
    report.kind = kind;
    report.bytes = bytes;
    report.pool = pool;
    report.free_page_bytes = free_page_bytes;
    heap.home.push_back(report);
  };
  piece(Kind::live, 100 * MiB);
  piece(Kind::live, 30 * MiB, kAnotherPool);
  piece(Kind::held, 11 * MiB);
  piece(Kind::lent, 70 * MiB);
  piece(Kind::hole, 7 * MiB, {}, 6 * MiB);
  piece(Kind::hole, 4 * MiB, {}, 4 * MiB);
  piece(Kind::hole, 3 * MiB, kAskedPool, 2 * MiB);
  piece(Kind::hole, 40 * MiB, kAnotherPool, 40 * MiB);
  WindowBlockReport block;
  block.bytes = 50 * MiB;
  block.stream = 0x7f10;
  heap.window_blocks.push_back(block);
  block.bytes = 20 * MiB;
  block.held = true;
  heap.window_blocks.push_back(block);
  return heap;
}

TEST(OutOfMemoryReportTest, EveryFigureIsOfItsOwn) {
  const FailedRequest request{.device = 0, .bytes = 300 * MiB, .stream = 0, .pool = kAskedPool};
  const OutOfMemoryReport report = explain(heap_of_all_kinds(), request, 200 * MiB);
  EXPECT_EQ(report.live_bytes, 180 * MiB);
  EXPECT_EQ(report.live_blocks, 3U);
  EXPECT_EQ(report.held_bytes, 31 * MiB);
  EXPECT_EQ(report.free_page_bytes, 12 * MiB);
  EXPECT_EQ(report.free_part_bytes, 2 * MiB);
  EXPECT_EQ(report.free_parts, 2U);
  ASSERT_EQ(report.free_in_pools.size(), 1U);
  EXPECT_EQ(report.free_in_pools[0].name, "pool {0, 2}");
  EXPECT_EQ(report.free_in_pools[0].bytes, 40 * MiB);
  ASSERT_EQ(report.by_pool.size(), 1U);
  EXPECT_EQ(report.by_pool[0].bytes, 30 * MiB);
  ASSERT_EQ(report.by_stream.size(), 2U);
  EXPECT_EQ(report.by_stream[0].name, "stream 0x0");
  EXPECT_EQ(report.by_stream[0].bytes, 130 * MiB);
  EXPECT_EQ(report.by_stream[1].name, "stream 0x7f10");
  // Of 824 MiB in use 512 MiB are ours; the limit leaves 88 MiB, less than the device has.
  EXPECT_EQ(report.elsewhere_bytes, 312 * MiB);
  EXPECT_EQ(report.missing_bytes, 200 * MiB);
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("31.00 MiB are freed, but pinned or shared"));
  EXPECT_THAT(text, HasSubstr("others on the device: 312.00 MiB"));
}

// For a request of no pool what is free in both pools is others'.
TEST(OutOfMemoryReportTest, APoolsMemoryIsFreeForItsRequestsOnly) {
  const FailedRequest request{.device = 0, .bytes = 300 * MiB, .stream = 0, .pool = {}};
  const OutOfMemoryReport report = explain(heap_of_all_kinds(), request, 200 * MiB);
  ASSERT_EQ(report.free_in_pools.size(), 2U);
  EXPECT_EQ(report.free_in_pools[1].bytes, 3 * MiB);
  EXPECT_EQ(report.free_page_bytes, 10 * MiB);
  EXPECT_EQ(report.missing_bytes, 202 * MiB);
}

}  // namespace
}  // namespace gapless
