// Checkpoints of pools whose blocks lie in windows, which may be gone or others when they are
// wanted again: then a state is refused, and nothing changes.
#include "tests/support/on_device.h"

namespace gapless {
namespace {

class CheckpointsAndWindows : public testing::OnDevice {
 protected:
  static constexpr PoolId kPool{0, 1};

  // Free pages of the pool with its live ones between them.
  void comb(std::size_t pages) {
    for (std::size_t i = 0; i < pages; ++i) blocks.push_back(alloc(2 * MiB));
    for (std::size_t i = 0; i < pages; i += 2) free(std::exchange(blocks[i], 0));
  }
  void refuse(const PoolState& state) {
    const std::vector<DeviceAddress> before = allocator->pool_blocks(kPool);
    PoolDelta delta;
    EXPECT_EQ(allocator->restore_pool(state, delta), Status::invalid_argument);
    allocator->validate();
    EXPECT_TRUE(delta.freed.empty() && delta.allocated.empty());
    EXPECT_EQ(allocator->pool_blocks(kPool), before);
  }
  void finish() {
    end(kPool);
    for (const DeviceAddress address : blocks) free(address);
    release(kPool);
  }

  std::vector<DeviceAddress> blocks;
};

// The window was unmapped, and its number is another window's, at other addresses.
TEST_F(CheckpointsAndWindows, AnotherWindowOfThatNumberIsNotTheOne) {
  start({.capacity = 256 * MiB, .settings = ""});
  begin(kPool);
  comb(40);
  const DeviceAddress window = alloc(8 * MiB);
  const DeviceAddress next = alloc(8 * MiB);  // whose addresses are behind the other's
  ASSERT_EQ(allocator->report().windows, 2U);
  const PoolState state = allocator->checkpoint_pool(kPool);
  free(window);
  EXPECT_EQ(allocator->trim(), Status::ok);  // unmaps what is idle
  ASSERT_EQ(allocator->report().windows, 1U);
  const DeviceAddress wide = alloc(12 * MiB);  // does not fit where the other was
  ASSERT_EQ(allocator->report().windows, 2U);
  EXPECT_NE(wide, window);
  free(wide);
  refuse(state);
  free(next);
  finish();
}

TEST_F(CheckpointsAndWindows, AWindowThatIsGoneIsNotThere) {
  start({.capacity = 256 * MiB, .settings = ""});
  begin(kPool);
  comb(40);
  const DeviceAddress window = alloc(8 * MiB);
  const PoolState state = allocator->checkpoint_pool(kPool);
  free(window);
  EXPECT_EQ(allocator->trim(), Status::ok);
  ASSERT_EQ(allocator->report().windows, 0U);
  refuse(state);
  finish();
}

// Places of the window have other pages by now, some of them those of another block of the state.
//
//   then   [ 0 | 2 | 4 | 6 | 8 | 10 ...     and a block over pages 41 and 43
//   now    [ 0 | 2 | 41| 43| 51| 10 ...     4, 6 and 8 are in use
TEST_F(CheckpointsAndWindows, APageThatARepairPutInTwoPlaces) {
  start({.capacity = 256 * MiB});
  for (int i = 0; i < 60; ++i) blocks.push_back(alloc(2 * MiB, 0, 1));
  const auto free_pages = [&](std::initializer_list<std::size_t> pages) {
    for (const std::size_t page : pages) free(std::exchange(blocks[page], 0));
  };
  for (std::size_t i = 0; i < 40; i += 2) free_pages({i});
  begin(kPool);
  const DeviceAddress window = alloc(40 * MiB, 0, 1);
  free_pages({41, 43});
  const DeviceAddress other = alloc(4 * MiB, 0, 1);
  const PoolState state = allocator->checkpoint_pool(kPool);
  ASSERT_EQ(state.blocks.size(), 2U);
  free(window);
  end(kPool);
  free_pages({45, 47, 49});
  blocks.push_back(alloc(6 * MiB, 0, 1));  // a program that goes on making windows
  ASSERT_EQ(allocator->report().windows, 3U);
  gpu->advance(100'000'000);
  begin(kPool);
  std::vector<DeviceAddress> singles;
  for (int i = 0; i < 5; ++i) singles.push_back(alloc(2 * MiB, 0, 1));
  free(singles[0]);
  free(singles[1]);
  free(other);
  free_pages({51});
  const DeviceAddress repaired = alloc(39 * MiB + 512 * KiB, 0, 1);
  EXPECT_EQ(allocator->counters().windows.repaired, 1U);
  free(repaired);
  refuse(state);
  for (std::size_t i = 2; i < singles.size(); ++i) free(singles[i]);
  release(kPool);
  finish();
}

}  // namespace
}  // namespace gapless
