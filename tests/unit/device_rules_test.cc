// validate() of the device's heap and allocator: every rule is broken once, told, and mended.
#include <functional>
#include <stdexcept>
#include <string>

#include "tests/support/on_device.h"
#include "tests/support/rule_breaker.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

// Live blocks, a hole, and a block in a window over pages that lie apart.
class DeviceRules : public testing::OnDevice {
 protected:
  void SetUp() override {
    start({.capacity = 32 * MiB});
    for (int i = 0; i < 8; ++i) kept.push_back(alloc(2 * MiB));
    for (const std::size_t page : {1, 3, 5, 7}) free(std::exchange(kept[page], 0));
    allocator->set_limit_bytes(16 * MiB);
    in_window = alloc(6 * MiB);
    ASSERT_EQ(allocator->report().windows, 1U);
  }
  void TearDown() override {
    allocator->validate();
    free(in_window);
    for (const DeviceAddress address : kept) free(address);
    testing::OnDevice::TearDown();
  }
  [[nodiscard]] std::string wrong() const {
    try {
      allocator->validate();
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "nothing";
  }
  // Sets it to that value for the time of one look.
  template <class T>
  void expect(T& broken, T value, const char* rule) {
    const T before = std::exchange(broken, value);
    EXPECT_THAT(wrong(), HasSubstr(rule));
    broken = before;
    EXPECT_EQ(wrong(), "nothing");
  }
  [[nodiscard]] Arena& arena() { return RuleBreaker::arena(*allocator); }
  [[nodiscard]] Block& block_at(DeviceAddress address) {
    return arena().heap.blocks()[arena().find(address)];
  }

  std::vector<DeviceAddress> kept;
  DeviceAddress in_window = 0;
};

// --- the heap ------------------------------------------------------------------------------------

TEST_F(DeviceRules, SmallBlocksAddUp) {
  const DeviceAddress small = alloc(1000);
  expect(RuleBreaker::small_blocks(arena().heap).at(0), 7U, "small pages: small blocks do not add");
  free(small);
}

TEST_F(DeviceRules, AWindowsPagesArePresent) {
  Windows& windows = RuleBreaker::windows(arena().heap);
  const WindowId window = block_at(in_window).prev;
  const PageId absent = arena().heap.home().max_pages() - 1;
  expect(windows.at(window).pages.at(0), absent, "a window over an absent page");
  expect(windows.at(window).pages.at(0), absent + 1, "a window over an absent page");
}

TEST_F(DeviceRules, MappedPagesAddUp) {
  std::uint64_t& mapped = RuleBreaker::mapped_pages(RuleBreaker::windows(arena().heap));
  expect(mapped, mapped + 1, "mapped pages do not add up");
}

TEST_F(DeviceRules, ExtentsAreOfTheirWindows) {
  auto& extent = RuleBreaker::first_extent(RuleBreaker::windows(arena().heap));
  expect(extent.end, std::uint32_t{0}, "an extent outside its window");
  expect(extent.probe, extent.probe + 1, "an extent's probe is another page");
}

TEST_F(DeviceRules, RunsAreTheirWindowsPages) {
  Window& window = RuleBreaker::windows(arena().heap).at(block_at(in_window).prev);
  ASSERT_FALSE(window.stale_runs);
  expect(window.runs, PageRuns({window.pages.at(0)}), "runs that are not a window's pages");
}

TEST_F(DeviceRules, ThePagesOfTheDeviceAddUp) {
  PageId& pages = RuleBreaker::device_pages(arena().heap);
  expect(pages, pages + 1, "the device's pages do not add up");
}

TEST_F(DeviceRules, PresentPagesHaveAHandle) {
  std::vector<MemHandle>& handles = RuleBreaker::page_handle(arena().heap);
  expect(handles.at(2), MemHandle{0}, "a page without a handle");
  expect(handles.back(), MemHandle{7}, "a page without a handle");
}

// --- blocks and addresses ------------------------------------------------------------------------

TEST_F(DeviceRules, AddressesLeadToLiveBlocks) {
  expect(block_at(kept[0]).state, BlockState::lent, "a live address leads to no live block");
}

TEST_F(DeviceRules, EveryLiveBlockHasAnAddress) {
  const BlockId taken = arena().take(kept[0]);
  EXPECT_THAT(wrong(), HasSubstr("a live block nobody can free"));
  arena().live.insert(kept[0], taken);
}

TEST_F(DeviceRules, AWindowBlockOwnsTheLentPagesItLiesOn) {
  Block& block = block_at(in_window);
  BlockTable& blocks = arena().heap.blocks();
  Block& second = blocks[blocks[block.link_next].link_next];
  ASSERT_EQ(second.state, BlockState::lent);
  expect(second.state, BlockState::live, "a window block's page is not lent");
  expect(blocks[block.link_next].link_next, BlockId{0}, "a window block does not own its pages");
  expect(block.size, block.size - 1, "a window block owns other pages than it lies on");
}

TEST_F(DeviceRules, PagesAreLentToWindowBlocksOnly) {
  const BlockId taken = arena().take(in_window);
  Block& other = block_at(kept[0]);
  // One live block fewer in the home, so that their number is right.
  other.state = BlockState::lent;
  const BlockId lent = arena().take(kept[0]);
  EXPECT_THAT(wrong(), HasSubstr("pages are lent to nobody"));
  other.state = BlockState::live;
  arena().live.insert(in_window, taken);
  arena().live.insert(kept[0], lent);
}

// --- statistics ----------------------------------------------------------------------------------

TEST_F(DeviceRules, StatisticsAreThoseOfTheBlocks) {
  StatisticsKeeper& statistics = RuleBreaker::statistics(*allocator);
  statistics.on_alloc(false, 512, 0);
  EXPECT_THAT(wrong(), HasSubstr("allocated bytes do not add up"));
  statistics.on_free(false, 512, 0);
  statistics.on_free(false, 0, 1);
  EXPECT_THAT(wrong(), HasSubstr("requested bytes do not add up"));
  statistics.on_alloc(false, 0, 1);
  statistics.on_alloc(true, 0, 0);
  EXPECT_THAT(wrong(), HasSubstr("the number of allocations is wrong"));
  statistics.on_free(true, 0, 0);
}

TEST_F(DeviceRules, HeldBlocksAreActive) {
  ASSERT_EQ(allocator->pin(kept[0]), Status::ok);
  free(kept[0]);
  StatisticsKeeper& statistics = RuleBreaker::statistics(*allocator);
  statistics.on_deferred(false, -1, -512, 0);
  EXPECT_THAT(wrong(), HasSubstr("held bytes are not active"));
  statistics.on_deferred(false, 1, 512, 0);
  EXPECT_EQ(allocator->unpin(kept[0]), Status::ok);
  kept[0] = 0;
}

TEST_F(DeviceRules, ReservedIsAtLeastWhatIsPresent) {
  StatisticsKeeper& statistics = RuleBreaker::statistics(*allocator);
  statistics.set_reserved(14 * MiB, 16 * MiB);
  EXPECT_THAT(wrong(), HasSubstr("reserved is less than what is present"));
  statistics.set_reserved(16 * MiB, 16 * MiB);
}

}  // namespace
}  // namespace gapless
