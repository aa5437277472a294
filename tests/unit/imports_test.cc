// What another process may have of a block, and what it may not: where a block begins in its first
// piece, work in flight on what was opened, shares that end.
#include <cstring>
#include <vector>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

class Imports : public testing::OnDevice {
 protected:
  // The first word of what another process opened.
  std::uint32_t word_at(DeviceAddress address) {
    std::uint32_t word = 0;
    EXPECT_EQ(gpu->copy_to_host(0, &word, address, sizeof word, 0), DriverStatus::ok);
    return word;
  }
};

// A handle of two pages or more holds several blocks; all but one begin inside it.
TEST_F(Imports, ABlockMayBeginInsideAFrame) {
  start({.capacity = 64 * MiB, .settings = "handle_parts:1", .keep_contents = true});
  free(alloc(4 * MiB));
  free(alloc(32 * MiB));
  std::vector<DeviceAddress> blocks;
  std::set<std::uint64_t> offsets;
  for (std::uint32_t i = 0; i < 12; ++i) {
    blocks.push_back(alloc(2 * MiB + (i % 2 == 0 ? 512 * KiB : 0)));
    ASSERT_EQ(gpu->memset_d32(0, blocks[i], 100 + i, 1, 0), DriverStatus::ok);
  }
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    SharedBlock shared;
    ASSERT_EQ(allocator->share(blocks[i], shared), Status::ok);
    const auto where = gpu->resolve(0, blocks[i], 512);
    EXPECT_EQ(shared.offset_bytes, where->front().offset);
    EXPECT_EQ(shared.pieces.front().bytes, gpu->bytes_of(where->front().handle));
    offsets.insert(shared.offset_bytes / (2 * MiB));
    SharedBlock told;
    std::string error;
    ASSERT_TRUE(from_message(to_message(shared), told, error)) << error;
    ImportedBlock imported(*gpu, 0);
    ASSERT_EQ(imported.open(told), DriverStatus::ok);
    close_descriptors(told);
    EXPECT_EQ(word_at(imported.address()), 100 + i);
    EXPECT_EQ(imported.close(), DriverStatus::ok);
    EXPECT_EQ(allocator->unshare(blocks[i]), Status::ok);
  }
  EXPECT_GT(offsets.size(), 1U);  // some begin in a later page of their frame
  for (const DeviceAddress address : blocks) free(address);
}

// The band in front of a block ends a page, so that none of the block lies there.
TEST_F(Imports, ABlockMayBeginWhereItsBandEndsAPage) {
  start({.capacity = 64 * MiB, .settings = "check:redzones", .keep_contents = true});
  const std::uint64_t bands = RedZones::kBefore + RedZones::kLeastBehind;
  const DeviceAddress first = alloc(2 * MiB - RedZones::kBefore - bands);
  const DeviceAddress second = alloc(3 * MiB);
  ASSERT_EQ(second % (2 * MiB), 0U);
  ASSERT_EQ(gpu->memset_d32(0, second, 42, 1, 0), DriverStatus::ok);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(second, shared), Status::ok);
  EXPECT_EQ(shared.offset_bytes, 0U);
  EXPECT_EQ(shared.pieces.size(), 2U);
  ImportedBlock imported(*gpu, 0);
  ASSERT_EQ(imported.open(shared), DriverStatus::ok);
  EXPECT_EQ(word_at(imported.address()), 42U);
  EXPECT_EQ(imported.close(), DriverStatus::ok);
  EXPECT_EQ(allocator->unshare(second), Status::ok);
  free(first);
  free(second);
}

TEST_F(Imports, ClosingWaitsForWorkInFlight) {
  start({.capacity = 32 * MiB});
  const DeviceAddress a = alloc(5 * MiB);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  ImportedBlock imported(*counting, 0);
  ASSERT_EQ(imported.open(shared), DriverStatus::ok);
  gpu->device_synchronize(0);  // the owner's work, before the other's
  write(imported.address(), 5 * MiB, side, 1'000'000'000);
  const std::uint64_t done_ns = gpu->work_end_ns(0);
  EXPECT_EQ(imported.close(), DriverStatus::ok);
  EXPECT_GE(gpu->now_ns(), done_ns);
  EXPECT_THAT(gpu->violations(), ::testing::IsEmpty());
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  free(a);
}

// The pin that comes with a share is not the program's to take.
TEST_F(Imports, OnlyUnshareEndsAShare) {
  start({.capacity = 8 * MiB});
  const DeviceAddress a = alloc(6 * MiB);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  EXPECT_EQ(allocator->unpin(a), Status::invalid_argument);
  ASSERT_EQ(allocator->pin(a), Status::ok);
  EXPECT_EQ(allocator->unpin(a), Status::ok);
  EXPECT_EQ(allocator->unpin(a), Status::invalid_argument);
  free(a);
  EXPECT_EQ(allocator->unpin(a), Status::invalid_argument);
  EXPECT_EQ(try_alloc(6 * MiB), Status::out_of_memory);
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  EXPECT_EQ(try_alloc(6 * MiB), Status::ok);
}

// The end of the block, were it computed: before its begin, inside of the last piece.
TEST_F(Imports, AnOffsetMayNotWrapAround) {
  start({.capacity = 8 * MiB});
  const DeviceAddress a = alloc(4 * MiB);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  for (const std::uint64_t offset : {UINT64_MAX - 511, UINT64_MAX - 2 * MiB + 513, 2 * MiB}) {
    SharedBlock wrong = shared;
    wrong.offset_bytes = offset;
    ImportedBlock imported(*gpu, 0);
    EXPECT_EQ(imported.open(wrong), DriverStatus::invalid_value) << offset;
    SharedBlock told;
    std::string error;
    EXPECT_FALSE(from_message(to_message(wrong), told, error)) << offset;
    EXPECT_THAT(error, ::testing::HasSubstr("contradicts itself"));
  }
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  free(a);
}

}  // namespace
}  // namespace gapless
