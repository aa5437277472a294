#include "allocator/heap/frames.h"

#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "allocator/heap/home.h"
#include "allocator/heap/window_planner.h"
#include "allocator/heap/windows.h"

namespace gapless {
namespace {

TEST(Frames, BeginAtMultiplesOfTheirPages) {
  Frames frames(24);
  EXPECT_FALSE(frames.any_joined());
  const auto begins = [&] {
    std::vector<PageId> first;
    for (PageId page = 0; page < 24; page = frames.end(page)) first.push_back(page);
    return first;
  };
  frames.join(3, 6, 1);  // 3 | 4 5 | 6 7 | 8
  EXPECT_TRUE(frames.any_joined());
  EXPECT_EQ(frames.largest(), 2U);
  EXPECT_EQ(begins(), (std::vector<PageId>{0,  1,  2,  3,  4,  6,  8,  9,  10, 11, 12,
                                           13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(frames.begin(5), 4U);
  EXPECT_EQ(frames.up(5), 6U);
  EXPECT_EQ(frames.up(4), 4U);
  EXPECT_EQ(frames.pages(7), 2U);
  EXPECT_EQ(frames.pages(8), 1U);
  frames.separate(6, 2);
  EXPECT_EQ(frames.pages(4), 2U);
  EXPECT_EQ(frames.pages(6), 1U);
  frames.separate(4, 2);
  frames.join(9, 1, 4);  // none fits
  EXPECT_EQ(frames.pages(9), 1U);
  frames.join(6, 17, 3);  // 6 7 | 8 to 15 | 16 to 19 | 20 21 | 22
  EXPECT_EQ(begins(), (std::vector<PageId>{0, 1, 2, 3, 4, 5, 6, 8, 16, 20, 22, 23}));
  EXPECT_EQ(frames.begin(13), 8U);
  EXPECT_EQ(frames.up(9), 16U);
  EXPECT_EQ(frames.largest(), 8U);
}

// Pages of 16 units.
class FramesTest : public ::testing::Test {
 protected:
  static constexpr Unit kPage = 16;
  static constexpr Owner kOne = 1;

  explicit FramesTest(PageId pages) : home(blocks, kPage, pages) {}
  void add(PageRange pages, FrameOrder order) {
    home.join_absent(pages, order);
    home.add_pages(pages, kOne, 1);
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
    return planner.plan_repair(size, kOne, std::vector<WindowId>{0}, 100);
  }

  BlockTable blocks;
  Home home;
  Windows windows{home, true};
  WindowPlanner planner{home, windows, blocks, true};
};

// Twelve pages: 0 to 3 come singly, 4 to 11 by two.
class FramesOfTwoTest : public FramesTest {
 protected:
  FramesOfTwoTest() : FramesTest(12) {
    add({0, 4}, 0);
    add({4, 8}, 1);
  }
};

TEST_F(FramesOfTwoTest, APageIsFreeWhenItsFrameIs) {
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

TEST_F(FramesOfTwoTest, PagesThatLeaveComeBackSingly) {
  home.remove_pages({6, 4});
  home.validate();
  home.add_pages({6, 4}, kOne, 1);
  home.validate();
  const BlockId block = take(7 * kPage, 1);
  EXPECT_EQ(home.free_pages(kOne), 11U);
  give_back(block);
}

TEST_F(FramesOfTwoTest, AWindowHasWholeFrames) {
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

TEST_F(FramesOfTwoTest, AnEdgeMayBeLongerThanAPage) {
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

TEST_F(FramesOfTwoTest, AbsentPagesGoOnToTheirFramesEnd) {
  home.remove_pages({5, 3});
  home.remove_pages({10, 2});
  const auto text_of = [](PageRange pages) {
    return fmt::format("{}+{}", pages.first, pages.count);
  };
  EXPECT_EQ(text_of(home.absent_to_frame_end({6, 1}, 1)),
            "6+2");  // 6 and 7, the last that are absent
  EXPECT_EQ(text_of(home.absent_to_frame_end({6, 1}, 2)), "6+2");
  EXPECT_EQ(text_of(home.absent_to_frame_end({5, 1}, 3)), "5+3");
  EXPECT_EQ(text_of(home.absent_to_frame_end({10, 1}, 1)), "10+2");
  EXPECT_EQ(text_of(home.absent_to_frame_end({10, 2}, 3)), "10+2");  // as it was: 12 is not there
}

TEST_F(FramesOfTwoTest, TheEndsOfOnePageAreNotJoined) {
  // Free: 4 and 8 units at the ends of page 1, 6 at the begin of page 3.
  std::vector<BlockId> used = {take(0, kPage), take(kPage + 4, 4), take(2 * kPage, kPage),
                               take(3 * kPage + 6, kPage - 6), take(4 * kPage, 8 * kPage)};
  EXPECT_EQ(text(planner.plan(12, kOne)), "0:1 1:3 at 10");
  EXPECT_EQ(planner.plan(12, kOne).missing, 0U);
  EXPECT_EQ(planner.plan(15, kOne).missing, 1U);
  for (const BlockId block : used) give_back(block);
}

TEST_F(FramesOfTwoTest, ARepairExchangesWholeFrames) {
  windows.add(0x1000, 6, {4, 5, 8, 9, 1, 2});
  const BlockId in_use = take(9 * kPage, 3);
  EXPECT_EQ(text(*repair(4 * kPage)), "2:6 3:7 at 0");
  // The run goes on to the end of the frame that three pages end inside of.
  windows.at(0).live = {{4 * kPage, 1}};
  EXPECT_EQ(text(*repair(3 * kPage)), "2:6 3:7 at 0");
  // A live block in half of a frame keeps all of it.
  windows.at(0).live = {{3 * kPage, 1}};
  EXPECT_EQ(text(*repair(2 * kPage)), "at 0");
  EXPECT_FALSE(repair(3 * kPage));
  windows.at(0).live = {};
  give_back(in_use);
  // An odd gap takes a single page, and a gap of two takes two single ones where there is no other.
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

// Twenty-four pages: 0 to 3 come singly, 4 to 7 by two, 8 to 23 by four.
class LargerFramesTest : public FramesTest {
 protected:
  LargerFramesTest() : FramesTest(24) {
    add({0, 4}, 0);
    add({4, 4}, 1);
    add({8, 16}, 2);
  }
};

TEST_F(LargerFramesTest, TheLastOfAPlanIsUsedInPart) {
  std::vector<BlockId> used;
  for (const Unit page : {0U, 2U}) used.push_back(take(page * kPage, kPage));
  used.push_back(take(4 * kPage, 2 * kPage));
  for (const Unit page : {12U, 20U}) used.push_back(take(page * kPage, 4 * kPage));
  // Free: 1, 3, 6 and 7, 8 to 11, 16 to 19.
  EXPECT_EQ(text(planner.plan(7 * kPage, kOne)), "0:1 1:6 2:7 3:8 4:9 5:10 6:11 at 0");
  used.push_back(take(3 * kPage, kPage));
  used.push_back(take(1 * kPage, kPage));
  // Two and four would be one too few; two fours are enough, and the two stay free.
  EXPECT_EQ(text(planner.plan(7 * kPage, kOne)), "0:8 1:9 2:10 3:11 4:16 5:17 6:18 7:19 at 0");
  for (const BlockId block : used) give_back(block);
}

TEST_F(LargerFramesTest, GapsAreFilledLargestFirst) {
  windows.add(0x1000, 8, {12, 13, 14, 15, 0, 4, 5, 1});
  std::vector<BlockId> used = {take(12 * kPage, 4 * kPage), take(0, kPage)};
  EXPECT_EQ(text(*repair(7 * kPage)), "0:8 1:9 2:10 3:11 4:2 at 0");
  // No frame of four is left: one of two and two single pages.
  give_back(used.back());
  used.pop_back();
  for (const Unit page : {8U, 16U, 20U}) used.push_back(take(page * kPage, 4 * kPage));
  EXPECT_EQ(text(*repair(7 * kPage)), "0:6 1:7 2:2 3:3 at 0");
  for (const BlockId block : used) give_back(block);
}

TEST_F(LargerFramesTest, NoPartOfAFrameFillsAGap) {
  windows.add(0x1000, 4, {0, 4, 5, 1});
  std::vector<BlockId> used = {take(0, kPage), take(2 * kPage, kPage)};
  EXPECT_EQ(text(*repair(4 * kPage)), "0:3 at 0");
  used.push_back(take(3 * kPage, kPage));
  EXPECT_FALSE(repair(4 * kPage));
  for (const BlockId block : used) give_back(block);
}

}  // namespace
}  // namespace gapless
