// Checkpoints of private pools: a pool as it was, at the addresses where it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

class PoolCheckpoints : public testing::OnDevice {
 protected:
  static constexpr PoolId kPool{0, 1};
  static constexpr PoolId kOther{0, 2};
};

TEST_F(PoolCheckpoints, ARestoredPoolHasItsBlocksWhereTheyWere) {
  start({.capacity = 256 * MiB});
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

TEST_F(PoolCheckpoints, APoolThatIsRestoredToNothingIsGivenUp) {
  start();
  begin(kPool);
  const PoolState empty = allocator->checkpoint_pool(kPool);
  const DeviceAddress a = alloc(8 * MiB);
  end(kPool);
  release(kPool);
  PoolDelta delta;
  ASSERT_EQ(allocator->restore_pool(empty, delta), Status::ok);
  EXPECT_THAT(delta.freed, ::testing::ElementsAre(a));
  free(alloc(8 * MiB));
  EXPECT_EQ(reserved(), 8 * MiB);
}

// Giving memory back for the soft limit in between unmapped the windows that were wanted again.
TEST_F(PoolCheckpoints, TheSoftLimitWaitsUntilAPoolIsRestored) {
  start({.capacity = 256 * MiB});
  std::vector<DeviceAddress> between;
  for (int i = 0; i < 16; ++i) between.push_back(alloc(2 * MiB));
  for (std::size_t i = 0; i < between.size(); i += 2) free(between[i]);
  begin(kPool);
  const DeviceAddress window = alloc(12 * MiB);
  const PoolState state = allocator->checkpoint_pool(kPool);
  free(window);
  const DeviceAddress other = alloc(8 * MiB);
  end(kPool);
  const DeviceAddress outside = alloc(64 * MiB);
  free(outside);
  allocator->set_soft_limit_bytes(reserved() - 8 * MiB);
  PoolDelta delta;
  ASSERT_EQ(allocator->restore_pool(state, delta), Status::ok);
  allocator->validate();
  EXPECT_EQ(delta.freed, std::vector<DeviceAddress>{other});
  EXPECT_EQ(delta.allocated, std::vector<DeviceAddress>{window});
  write(window, 12 * MiB, 0);
  EXPECT_LE(reserved(), allocator->statistics().reserved_bytes.all.peak - 8 * MiB);
  free(window);
  release(kPool);
  for (std::size_t i = 1; i < between.size(); i += 2) free(between[i]);
}

// A state outlives its pool; one of the same name may have its memory later.
TEST_F(PoolCheckpoints, AStateMayBeRestoredInAPoolThatWasMadeAgain) {
  start();
  begin(kPool);
  const DeviceAddress a = alloc(4 * MiB);
  const PoolState state = allocator->checkpoint_pool(kPool);
  free(a);
  end(kPool);
  release(kPool);
  EXPECT_EQ(allocator->retain_pool(kOther), Status::ok);  // takes the first one's place
  begin(kPool);
  EXPECT_EQ(alloc(4 * MiB), a);
  free(a);
  PoolDelta delta;
  ASSERT_EQ(allocator->restore_pool(state, delta), Status::ok);
  EXPECT_EQ(allocator->pool_blocks(kPool), std::vector<DeviceAddress>{a});
  end(kPool);
  free(a);
  allocator->validate();
  release(kPool);
  release(kOther);
}

TEST_F(PoolCheckpoints, APlaceThatIsTakenIsNotRestored) {
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
