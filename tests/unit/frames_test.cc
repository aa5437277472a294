#include "allocator/heap/frames.h"

#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "allocator/heap/home.h"
#include "allocator/heap/window_planner.h"
#include "allocator/heap/windows.h"

namespace gapless {
namespace {

TEST(Frames, PairsBeginWithEvenPages) {
  Frames frames(16);
  EXPECT_FALSE(frames.any_pairs());
  frames.pair(3, 6);  // 3 | 4 5 | 6 7 | 8
  EXPECT_TRUE(frames.any_pairs());
  std::vector<PageId> begins;
  for (PageId page = 0; page < 16; page = frames.end(page)) begins.push_back(page);
  EXPECT_EQ(begins, (std::vector<PageId>{0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(frames.begin(5), 4U);
  EXPECT_EQ(frames.up(5), 6U);
  EXPECT_EQ(frames.up(4), 4U);
  EXPECT_EQ(frames.pages(7), 2U);
  EXPECT_EQ(frames.pages(8), 1U);
  frames.separate(6, 2);
  EXPECT_EQ(frames.pages(4), 2U);
  EXPECT_EQ(frames.pages(6), 1U);
  frames.pair(9, 1);  // none fits
  EXPECT_EQ(frames.pages(9), 1U);
}

// Twelve pages of 16 units: 0 to 3 come singly, 4 to 11 in pairs.
class FramesTest : public ::testing::Test {
 protected:
  static constexpr Unit kPage = 16;
  static constexpr Owner kOne = 1;

  FramesTest() {
    home.add_pages({0, 4}, kOne, 1);
    home.pair_absent({4, 8});
    home.add_pages({4, 8}, kOne, 1);
    home.validate();
  }
  BlockId take(Unit begin, Unit size) {
    const BlockId id = home.carve(home.hole_at(begin), {begin, size}, BlockState::live);
    home.validate();
    return id;
  }
  void give_back(BlockId block) {
    home.free(block, kOne, 1);
    home.validate();
  }
  static std::string text(const WindowPlan& plan) {
    std::string text;
    for (const auto& [place, page] : plan.fills) text += fmt::format("{}:{} ", place, page);
    for (const std::uint32_t place : plan.drops) text += fmt::format("drop {} ", place);
    return text + fmt::format("at {}", plan.begin);
  }
  std::optional<WindowPlan> repair(Unit size) {
    return planner.plan_repair(size, kOne, std::vector<WindowId>{0}, 100, 0);
  }

  BlockTable blocks;
  Home home{blocks, kPage, 12};
  Windows windows{home, true};
  WindowPlanner planner{home, windows, blocks, true};
};

TEST_F(FramesTest, APageIsFreeWhenItsFrameIs) {
  EXPECT_EQ(home.free_pages(kOne), 12U);
  const BlockId in_pair = take(5 * kPage + 4, 4);
  EXPECT_EQ(home.free_pages(kOne), 10U);
  EXPECT_FALSE(home.is_free(PageId{4}, kOne));
  EXPECT_EQ(home.free_prefix(4, kOne), kPage + 4);
  EXPECT_EQ(home.free_suffix(5, kOne), kPage - 8);
  const BlockId single = take(kPage, 4);
  EXPECT_EQ(home.free_pages(kOne), 9U);
  give_back(in_pair);
  EXPECT_EQ(home.free_pages(kOne), 11U);
  give_back(single);
  EXPECT_EQ(home.free_pages(kOne), 12U);
}

TEST_F(FramesTest, PagesThatLeaveComeBackSingly) {
  home.remove_pages({6, 4});
  home.validate();
  home.add_pages({6, 4}, kOne, 1);
  home.validate();
  const BlockId block = take(7 * kPage, 1);
  EXPECT_EQ(home.free_pages(kOne), 11U);
  give_back(block);
}

TEST_F(FramesTest, AWindowHasWholeFrames) {
  // Free: 1, 4 and 5, 8 and 9.
  std::vector<BlockId> used;
  for (const Unit page : {0U, 2U, 3U, 6U, 10U}) used.push_back(take(page * kPage, kPage));
  used.push_back(take(7 * kPage, kPage));
  used.push_back(take(11 * kPage, kPage));
  EXPECT_EQ(text(planner.plan(3 * kPage, kOne)), "0:1 1:4 2:5 at 0");
  EXPECT_EQ(text(planner.plan(4 * kPage, kOne)), "0:4 1:5 2:8 3:9 at 0");
  EXPECT_EQ(planner.plan(6 * kPage, kOne).missing, 1U);
  used.push_back(take(kPage, kPage));
  // A page more than is wanted; nothing is left of the frame for another.
  EXPECT_EQ(text(planner.plan(3 * kPage, kOne)), "0:4 1:5 2:8 3:9 at 0");
  for (const BlockId block : used) give_back(block);
}

TEST_F(FramesTest, AnEdgeMayBeLongerThanAPage) {
  std::vector<BlockId> used = {take(0, 4 * kPage + 8)};  // 1.5 pages free at the end of 4 and 5
  used.push_back(take(9 * kPage + 4, 2 * kPage + 12));   // 1.25 at the begin of 8 and 9
  used.push_back(take(6 * kPage, 2 * kPage));            // between
  EXPECT_EQ(text(planner.plan(2 * kPage + 12, kOne)), "0:4 1:5 2:8 3:9 at 8");
  EXPECT_EQ(text(planner.plan(2 * kPage + 8, kOne)), "0:4 1:5 2:8 3:9 at 12");
  EXPECT_EQ(planner.plan(2 * kPage + 13, kOne).missing, 1U);
  // A window with a whole frame between them.
  windows.add(0x1000, 16, {4, 5, 6, 7, 8, 9});
  give_back(used.back());
  used.pop_back();
  EXPECT_EQ(windows.find(4 * kPage + 12, kOne)->begin, 8U);
  EXPECT_EQ(windows.find(3 * kPage + 4, kOne)->begin, 2 * kPage);  // ends inside the last frame
  EXPECT_FALSE(windows.find(4 * kPage + 13, kOne));
  for (const BlockId block : used) give_back(block);
}

TEST_F(FramesTest, ARepairExchangesWholeFrames) {
  windows.add(0x1000, 6, {4, 5, 8, 9, 1, 2});
  const BlockId in_use = take(9 * kPage, 3);
  EXPECT_EQ(text(*repair(4 * kPage)), "2:6 3:7 at 0");
  // Three pages from the first place on would end inside the second pair.
  windows.at(0).live = {{4 * kPage, 1}};
  EXPECT_EQ(text(*repair(3 * kPage)), "2:6 3:7 at 16");
  // A live block in half of a frame keeps all of it.
  windows.at(0).live = {{3 * kPage, 1}};
  EXPECT_EQ(text(*repair(2 * kPage)), "at 0");
  EXPECT_FALSE(repair(3 * kPage));
  windows.at(0).live = {};
  give_back(in_use);
  // An odd gap takes a single page, and a pair's gap two single ones where there is no other.
  const BlockId single = take(kPage, 3);
  EXPECT_EQ(text(*repair(6 * kPage)), "4:3 at 0");
  give_back(single);
  const std::vector<BlockId> pairs = {take(6 * kPage, 1), take(10 * kPage, 1), take(8 * kPage, 1)};
  EXPECT_EQ(text(*repair(5 * kPage)), "2:0 3:3 at 0");
  const std::vector<BlockId> singles = {take(0, 1)};
  EXPECT_FALSE(repair(5 * kPage));
  for (const BlockId block : pairs) give_back(block);
  for (const BlockId block : singles) give_back(block);
}

}  // namespace
}  // namespace gapless
