#include <map>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "allocator/heap/home.h"
#include "allocator/heap/live_table.h"
#include "allocator/heap/size_bins.h"
#include "allocator/heap/sweep.h"
#include "allocator/heap/window_planner.h"
#include "allocator/heap/windows.h"

namespace gapless {
namespace {

TEST(SizeBins, BinsTileAllSizes) {
  for (std::uint32_t bin = 0; bin + 1 < kBins; ++bin) {
    const Unit smallest = smallest_of_bin(bin);
    const Unit next = smallest_of_bin(bin + 1);
    ASSERT_LT(smallest, next);
    ASSERT_EQ(bin_of(smallest), bin);
    ASSERT_EQ(bin_of(next - 1), bin);
    // Sizes that share a bin differ by 1/32 at most.
    ASSERT_LE((next - 1 - smallest) * 32, smallest);
  }
  EXPECT_EQ(bin_of(UINT32_MAX), kBins - 1);
}

BlockId hole(BlockTable& blocks, Unit begin, Unit size) {
  const BlockId id = blocks.make();
  blocks[id].state = BlockState::hole;
  blocks[id].begin = begin;
  blocks[id].size = size;
  return id;
}

TEST(SizeBins, BestFitIsSmallestThenLowest) {
  BlockTable blocks;
  SizeBins bins(blocks);
  std::mt19937 random(3);
  std::map<std::pair<Unit, Unit>, BlockId> model;  // (size, begin)
  for (int step = 0; step < 5000; ++step) {
    if (!model.empty() && random() % 3 == 0) {
      // Cut smaller and joined again, or left so: nobody looks in between.
      const auto changed = std::next(model.begin(), static_cast<long>(random() % model.size()));
      const auto [size, begin] = changed->first;
      const BlockId id = changed->second;
      const Unit cut = static_cast<Unit>(random() % (size - 2047));
      if (cut != 0 && !model.contains({size - cut, begin + cut})) {
        bins.resize(id, begin + cut, size - cut);
        if (random() % 2 == 0) {
          bins.resize(id, begin, size);
        } else {
          model.erase(changed);
          model[{size - cut, begin + cut}] = id;
        }
      }
    }
    if (model.size() < 200 && random() % 3 != 0) {
      const Unit begin = static_cast<Unit>(random() % 1000000);
      const Unit size = 2048 + static_cast<Unit>(random() % 40000);
      if (model.contains({size, begin})) continue;
      const BlockId id = hole(blocks, begin, size);
      bins.insert(id);
      model[{size, begin}] = id;
    } else if (!model.empty()) {
      const auto victim = std::next(model.begin(), static_cast<long>(random() % model.size()));
      bins.remove(victim->second);
      blocks.recycle(victim->second);
      model.erase(victim);
    }
    if (random() % 2 == 0) continue;
    const Unit wanted = 2048 + static_cast<Unit>(random() % 42000);
    const auto expected = model.lower_bound({wanted, 0});
    ASSERT_EQ(bins.best_fit(wanted), expected == model.end() ? 0 : expected->second);
    ASSERT_EQ(blocks[bins.largest()].size, model.empty() ? 0 : model.rbegin()->first.first);
    bins.validate();
  }
}

TEST(SizeBins, FindsTheOnlyFitAmongManyTooSmallInItsBin) {
  BlockTable blocks;
  SizeBins bins(blocks);
  const Unit wanted = smallest_of_bin(150) + 3;
  ASSERT_LT(wanted, 2048U);  // where only the first few are looked at, at first
  const BlockId fits = hole(blocks, 0, wanted);
  bins.insert(fits);
  for (Unit i = 1; i <= 100; ++i) bins.insert(hole(blocks, i * 10000, wanted - 1));
  EXPECT_EQ(bins.best_fit(wanted), fits);
}

TEST(SizeBins, ResizeMovesBetweenBins) {
  BlockTable blocks;
  SizeBins bins(blocks);
  const BlockId id = hole(blocks, 0, 5000);
  bins.insert(id);
  bins.resize(id, 0, 5001);
  EXPECT_EQ(bins.best_fit(5001), id);
  bins.resize(id, 10, 70);
  bins.validate();
  EXPECT_EQ(bins.best_fit(71), 0U);
  EXPECT_EQ(bins.best_fit(70), id);
}

TEST(LiveTable, AgreesWithMapWhileItGrows) {
  LiveTable table;
  std::map<std::uint64_t, BlockId> model;
  std::mt19937_64 random(5);
  for (int step = 0; step < 100000; ++step) {
    const std::uint64_t address = (random() % 20000) * 512;
    const auto found = model.find(address);
    const auto is = [&](BlockId block) { return found != model.end() && block == found->second; };
    ASSERT_EQ(table.find(address, is), found == model.end() ? 0 : found->second);
    if (found == model.end()) {
      const auto block = static_cast<BlockId>(step + 1);
      table.insert(address, block);
      model[address] = block;
    } else {
      ASSERT_EQ(table.take(address, is), found->second);
      model.erase(found);
    }
    ASSERT_EQ(table.size(), model.size());
  }
  std::size_t seen = 0;
  table.for_each([&](BlockId) { ++seen; });
  EXPECT_EQ(seen, model.size());
}

// It waits outside of the table until the next one comes.
TEST(LiveTable, KnowsTheLastAddress) {
  LiveTable table;
  const auto any = [](BlockId) { return true; };
  table.insert(512, 7);
  table.insert(1024, 8);
  EXPECT_EQ(table.find(1024, any), 8U);
  EXPECT_EQ(table.take(1024, any), 8U);
  EXPECT_EQ(table.take(1024, any), 0U);
  EXPECT_EQ(table.find(1024, any), 0U);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(table.take(512, any), 7U);
  EXPECT_EQ(table.size(), 0U);
}

// A home of 8 pages of 16 units.
class HomeTest : public ::testing::Test {
 protected:
  static constexpr Unit kPage = 16;
  static constexpr Owner kOne = 1;
  static constexpr Owner kTwo = 2;

  BlockId take(Unit size, Owner owner = kOne) {
    const Fit fit = home.fit(size, owner);
    if (fit.hole == 0) return 0;
    const BlockId id = home.carve(fit.hole, {fit.begin, size}, BlockState::live);
    home.validate();
    return id;
  }
  BlockId take_at(Unit begin, Unit size) {
    for (BlockId id = 1; id < 100; ++id) {
      const Block& block = blocks[id];
      if (block.state == BlockState::hole && block.begin <= begin && begin + size <= block.end()) {
        const BlockId made = home.carve(id, {begin, size}, BlockState::live);
        home.validate();
        return made;
      }
    }
    ADD_FAILURE() << "no hole at " << begin;
    return 0;
  }
  void give_back(BlockId block, Owner owner = kOne, std::uint32_t epoch = 1) {
    home.free(block, owner, epoch);
    home.validate();
  }

  BlockTable blocks;
  Home home{blocks, kPage, 8};
};

TEST_F(HomeTest, IsEmptyAtFirst) {
  EXPECT_EQ(take(1), 0U);
  EXPECT_EQ(home.present_pages(), 0U);
  const auto growth = home.growth_for(20, kOne, false);
  ASSERT_TRUE(growth);
  EXPECT_EQ(growth->first, 0U);
  EXPECT_EQ(growth->count, 2U);
}

TEST_F(HomeTest, GrowthCountsTheHoleBeforeIt) {
  home.add_pages({0, 2}, kOne, 1);
  take(20);
  EXPECT_EQ(home.growth_for(12, kOne, false)->count, 1U);
  EXPECT_EQ(home.growth_for(28, kOne, false)->count, 1U);
  EXPECT_EQ(home.growth_for(29, kOne, false)->count, 2U);
  EXPECT_EQ(home.growth_for(29, kTwo, false)->count, 2U);
  EXPECT_EQ(home.growth_for(28, kTwo, false)->count, 2U);  // that hole is not the second's
  EXPECT_EQ(home.growth_for(12 + 6 * kPage, kOne, false)->count, 6U);
  EXPECT_FALSE(home.growth_for(13 + 6 * kPage, kOne, false));
}

TEST_F(HomeTest, BarrierKeepsAPageOfDistance) {
  EXPECT_EQ(home.growth_for(8 * kPage, kOne, true)->count, 8U);
  home.add_pages({0, 2}, kOne, 1);
  const auto growth = home.growth_for(kPage, kOne, true);
  EXPECT_EQ(growth->first, 3U);
  home.add_pages(*growth, kOne, 1);
  home.validate();
  EXPECT_EQ(blocks[home.largest_hole(kOne)].size, 2 * kPage);
}

TEST_F(HomeTest, MergesWithBothNeighbours) {
  home.add_pages({0, 4}, kOne, 1);
  const BlockId a = take(10);
  const BlockId b = take(10);
  const BlockId c = take(10);
  give_back(a);
  give_back(c);
  EXPECT_EQ(home.holes().current, 2);
  give_back(b);
  EXPECT_EQ(home.holes().current, 1);
  EXPECT_EQ(blocks[home.largest_hole(kOne)].size, 4 * kPage);
  EXPECT_EQ(home.free_pages(kOne), 4U);
}

TEST_F(HomeTest, PagesAreFreeOnlyAsAWhole) {
  home.add_pages({0, 4}, kOne, 1);
  const BlockId a = take_at(20, 30);  // parts of pages 1 and 3, all of page 2
  EXPECT_TRUE(home.is_free(0, kOne));
  EXPECT_FALSE(home.is_free(1, kOne));
  EXPECT_FALSE(home.is_free(2, kOne));
  EXPECT_FALSE(home.is_free(3, kOne));
  EXPECT_EQ(home.free_prefix(1, kOne), 4U);
  EXPECT_EQ(home.free_suffix(1, kOne), 0U);
  EXPECT_EQ(home.free_suffix(3, kOne), 14U);
  EXPECT_EQ(home.free_prefix(3, kOne), 0U);
  EXPECT_EQ(home.hole_at(17), home.hole_at(3));
  EXPECT_EQ(blocks[home.hole_at(50)].begin, 50U);
  give_back(a);
  EXPECT_EQ(home.free_pages(kOne), 4U);
}

TEST_F(HomeTest, OwnersKeepApartUntilSettled) {
  home.add_pages({0, 4}, kOne, 1);
  const BlockId a = take(2 * kPage, kOne);
  const BlockId b = take(2 * kPage, kOne);
  give_back(a, kOne, 3);
  give_back(b, kTwo, 5);
  EXPECT_EQ(home.holes().current, 2);
  EXPECT_EQ(home.fit(3 * kPage, kOne).hole, 0U);
  EXPECT_TRUE(home.is_free(0, kOne));
  EXPECT_FALSE(home.is_free(0, kTwo));
  home.settle(kOne, 2);  // too early
  home.validate();
  EXPECT_FALSE(home.is_free(0, kTwo));
  home.settle(kOne, 3);
  home.validate();
  EXPECT_TRUE(home.is_free(0, kTwo));
  EXPECT_EQ(home.free_pages(kTwo), 4U);
  home.settle(kTwo, 5);
  home.validate();
  EXPECT_EQ(home.holes().current, 1);
  EXPECT_NE(home.fit(4 * kPage, 7).hole, 0U);
}

TEST_F(HomeTest, FreeTakesAnyonesNeighboursAlong) {
  home.add_pages({0, 4}, kOne, 1);
  const BlockId a = take(kPage, kOne);
  const BlockId b = take(kPage, kOne);
  const BlockId c = take(kPage, kOne);
  take(kPage, kOne);
  give_back(a, kOne, 1);
  give_back(c, kOne, 1);
  home.settle(kOne, 1);
  give_back(b, kTwo, 4);
  EXPECT_EQ(home.holes().current, 1);
  EXPECT_EQ(home.fit(3 * kPage, kOne).hole, 0U);
  EXPECT_NE(home.fit(3 * kPage, kTwo).hole, 0U);
}

TEST_F(HomeTest, RemovedPagesLeaveGapsThatGrowthFills) {
  home.add_pages({0, 6}, kOne, 1);
  home.remove_pages({2, 2});
  home.validate();
  EXPECT_EQ(home.present_pages(), 4U);
  EXPECT_EQ(blocks[home.largest_hole(kOne)].size, 2 * kPage);
  const auto run = home.absent_run(9);
  EXPECT_EQ(run->first, 2U);
  EXPECT_EQ(run->count, 2U);
  home.add_pages({2, 2}, kOne, 1);
  home.validate();
  EXPECT_EQ(blocks[home.largest_hole(kOne)].size, 6 * kPage);
}

TEST(HomeLarge, RequestsOfSomePagesBreakTheFewest) {
  BlockTable blocks;
  constexpr Unit kPage = 4096;
  constexpr Unit kBegin = kPage * 7 / 8;
  constexpr Unit kEnd = 40 * kPage + kPage / 2;
  Home home(blocks, kPage, 64);
  home.add_pages({0, 64}, 1, 1);
  // A hole from the last eighth of page 0 to half of page 40.
  home.carve(home.fit(100, 1).hole, {0, kBegin}, BlockState::live);
  home.carve(home.hole_at(kEnd), {kEnd, 64 * kPage - kEnd}, BlockState::live);
  home.validate();
  const auto begin = [&](Unit pages, Unit eighths) {
    return home.fit(pages * kPage + eighths * kPage / 8, 1).begin;
  };
  EXPECT_EQ(begin(1, 1), kBegin);  // page 1 at either end
  // At the begin it would break a page more than at the end.
  EXPECT_EQ(begin(1, 3), kEnd - kPage * 11 / 8);
  EXPECT_EQ(begin(15, 3), kEnd - kPage * 123 / 8);
  EXPECT_EQ(begin(16, 3), kBegin);  // of so many, one is little
  EXPECT_EQ(begin(3, 0), kPage);    // whole pages
  EXPECT_EQ(begin(20, 0), kPage);
}

// A hole of 9 pages, one of 20 and another of 9, and blocks that are placed in them one by one.
class SweepTest : public ::testing::Test {
 protected:
  static constexpr Unit kPage = 4096;
  static constexpr Unit kBlock = 3 * kPage + 8;

  SweepTest() {
    home.add_pages({0, 40}, 1, 1);
    for (const Unit page : {9U, 30U}) {
      home.carve(home.hole_at(page * kPage), {page * kPage, kPage}, BlockState::live);
    }
  }
  BlockId place(Unit size, Owner owner = 1) {
    const Fit fit = sweep.fit(size, owner);
    EXPECT_NE(fit.hole, 0U);
    const BlockId block = home.carve(fit.hole, {fit.begin, size}, BlockState::live);
    sweep.note_made(block);
    home.validate();
    return block;
  }
  Unit begin_of(BlockId block) { return blocks[block].begin; }

  BlockTable blocks;
  Home home{blocks, kPage, 40};
  Sweep sweep{home, blocks};
};

TEST_F(SweepTest, BeginsInTheLargestHoleAndGoesOnBehindTheLastBlock) {
  const BlockId first = place(kBlock);
  EXPECT_EQ(begin_of(first), 10 * kPage);
  const BlockId second = place(kBlock);
  EXPECT_EQ(begin_of(second), blocks[first].end());
  for (int i = 0; i < 3; ++i) place(kBlock);
  // 4 pages are left behind them, for this but not for the next; 9 are the largest hole then.
  EXPECT_EQ(begin_of(place(kBlock)), 10 * kPage + 5 * kBlock);
  EXPECT_EQ(begin_of(place(kBlock)), 0U);
}

TEST_F(SweepTest, BeginsAnewWhereItsLastBlockIsGone) {
  const BlockId first = place(12 * kPage);
  const BlockId last = place(kPage);
  EXPECT_EQ(begin_of(last), blocks[first].end());
  home.free(last, 1, 2);
  EXPECT_EQ(begin_of(place(kPage)), 0U);  // 9 pages are free there, 8 behind the first
}

TEST_F(SweepTest, GoesBackBehindWhatWasThereBeforeATemporary) {
  const BlockId first = place(12 * kPage);
  for (int temporaries = 0; temporaries < 3; ++temporaries) {
    const BlockId temporary = place(kPage);
    sweep.note_freed(temporary);
    home.free(temporary, 1, 2);
  }
  EXPECT_EQ(begin_of(place(kPage)), blocks[first].end());
}

TEST_F(SweepTest, TakesNothingOfOthers) {
  const BlockId first = place(kBlock);
  home.free(place(kBlock), 2, 2);  // the hole behind the first is another's
  sweep.note_made(first);
  EXPECT_EQ(sweep.fit(kBlock, 1).begin, blocks[first].end() + kBlock);  // of 14 pages: the largest
  EXPECT_EQ(sweep.fit(kBlock, 2).begin, blocks[first].end());
  EXPECT_EQ(sweep.fit(kBlock, 3).hole, 0U);
}

class WindowsTest : public HomeTest {
 protected:
  // Pages 1, 3, 5, 6 of 8 are free.
  WindowsTest() {
    home.add_pages({0, 8}, kOne, 1);
    for (const Unit page : {0U, 2U, 4U, 7U}) used.push_back(take_at(page * kPage, kPage));
  }
  std::vector<BlockId> used;
};

TEST_F(WindowsTest, FindsRunsOfFreePagesAcrossTheWindow) {
  Windows windows(home, false);
  const WindowId id = windows.add(0x1000, 16, {6, 5, 3, 1});
  auto spot = windows.find(4 * kPage, kOne);
  ASSERT_TRUE(spot);
  EXPECT_EQ(spot->window, id);
  EXPECT_EQ(spot->begin, 0U);
  EXPECT_FALSE(windows.find(4 * kPage + 1, kOne));
  EXPECT_FALSE(windows.find(kPage, kTwo));
  take_at(5 * kPage, 3);  // page 5, the window's second, is used now
  spot = windows.find(2 * kPage, kOne);
  ASSERT_TRUE(spot);
  EXPECT_EQ(spot->begin, 2 * kPage);
  EXPECT_FALSE(windows.find(2 * kPage + 1, kOne));
  const auto ranges = windows.home_ranges(*spot);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].begin, 3 * kPage);
  EXPECT_EQ(ranges[1].begin, 1 * kPage);
}

TEST_F(WindowsTest, EdgesAreShared) {
  Windows windows(home, true);
  windows.add(0x1000, 16, {1, 3, 5});
  take_at(1 * kPage, 10);      // 6 units free at the end of page 1
  take_at(5 * kPage + 12, 4);  // 12 units free at the begin of page 5
  const auto spot = windows.find(kPage + 18, kOne);
  ASSERT_TRUE(spot);
  EXPECT_EQ(spot->begin, 10U);
  EXPECT_FALSE(windows.find(kPage + 19, kOne));
  Windows whole(home, false);
  whole.add(0x1000, 16, {1, 3, 5});
  EXPECT_FALSE(whole.find(kPage + 1, kOne));
}

TEST_F(WindowsTest, TwoEdgesAreEnough) {
  Windows windows(home, true);
  windows.add(0x1000, 16, {3, 1, 5});
  take_at(3 * kPage, kPage);
  take_at(1 * kPage, 10);      // 6 units free at the end of page 1
  take_at(5 * kPage + 12, 4);  // 12 units free at the begin of page 5
  const auto spot = windows.find(18, kOne);
  ASSERT_TRUE(spot);
  EXPECT_EQ(spot->begin, kPage + 10);
  EXPECT_TRUE(windows.is_free(*spot, kOne));
  EXPECT_FALSE(windows.find(19, kOne));
  EXPECT_FALSE(windows.find(18, kTwo));
  EXPECT_FALSE(windows.find(12, kOne));  // a hole of the home has room for that
  windows.drop_page(0, 1);
  EXPECT_FALSE(windows.find(18, kOne));
}

TEST_F(WindowsTest, TheOldestExtentWithRoomIsTaken) {
  Windows windows(home, false);
  const WindowId first = windows.add(0x1000, 16, {1, 3});
  const WindowId second = windows.add(0x9000, 16, {5, 6, 3});
  EXPECT_EQ(windows.find(2 * kPage, kOne)->window, first);
  EXPECT_EQ(windows.find(3 * kPage, kOne)->window, second);
  windows.extend(first, {5});
  // The extension is younger than the second window.
  EXPECT_EQ(windows.find(3 * kPage, kOne)->window, second);
  windows.remove(second);
  const auto spot = windows.find(3 * kPage, kOne);
  ASSERT_TRUE(spot);
  EXPECT_EQ(spot->window, first);
  EXPECT_EQ(spot->begin, 0U);
  EXPECT_EQ(windows.mapped_pages(), 3U);
}

TEST_F(WindowsTest, RunsBesideTheProbedPlaceAreFound) {
  Windows windows(home, false);
  const WindowId half = windows.add(0x1000, 16, {1, 2});  // the middle is used
  EXPECT_EQ(windows.find(kPage, kOne)->window, half);
  windows.remove(half);
  const WindowId later = windows.add(0x9000, 16, {4});
  windows.extend(later, {3, 5});  // the place before them is used
  const auto spot = windows.find(2 * kPage, kOne);
  ASSERT_TRUE(spot);
  EXPECT_EQ(spot->begin, kPage);
  EXPECT_FALSE(windows.find(3 * kPage, kOne));
}

TEST_F(WindowsTest, LongestTailStopsAtRoomAndUsedPages) {
  Windows windows(home, false);
  const WindowId tight = windows.add(0x1000, 3, {6, 3, 1});
  EXPECT_EQ(windows.longest_tail(3, kOne).pages, 3U);
  EXPECT_EQ(windows.longest_tail(4, kOne).pages, 0U);  // no room for a fourth
  const WindowId wide = windows.add(0x9000, 16, {5, 0, 3, 1});
  const Windows::Tail tail = windows.longest_tail(4, kOne);
  EXPECT_EQ(tail.window, wide);
  EXPECT_EQ(tail.pages, 2U);  // page 0 is used
  windows.at(wide).retired = true;
  EXPECT_EQ(windows.longest_tail(4, kOne).pages, 0U);
  EXPECT_EQ(windows.find(3 * kPage, kOne)->window, tight);
}

class RepairTest : public WindowsTest {
 protected:
  // In the window's order; pages 2, 4 are used, the rest of its pages free.
  RepairTest() : windows(home, true), planner(home, windows, blocks, true) {}
  std::optional<WindowPlan> plan(Unit size, std::uint32_t calls_below = 100) {
    const std::vector<WindowId> idle = {0};
    return planner.plan_repair(size, kOne, idle, calls_below);
  }
  static std::string text(const WindowPlan& plan) {
    std::string text;
    for (const auto& [place, page] : plan.fills) text += fmt::format("{}:{} ", place, page);
    for (const std::uint32_t place : plan.drops) text += fmt::format("drop {} ", place);
    return text + fmt::format("at {} in {} calls", plan.begin, plan.calls);
  }
  Windows windows;
  WindowPlanner planner;
};

TEST_F(RepairTest, ExchangesTheFewestPages) {
  windows.add(0x1000, 5, {1, 2, 4, 3, 5});
  // Pages 1, 3, 5 are free and in it, 6 free and not in it: one place is wrong in 3, 5 and 4.
  auto repair = plan(3 * kPage);
  ASSERT_TRUE(repair);
  EXPECT_EQ(text(*repair), "2:6 at 32 in 3 calls");
  EXPECT_EQ(repair->missing, 0U);
  EXPECT_FALSE(plan(3 * kPage, 3));  // not with fewer calls than three
  // Two neighbours are unmapped in one call, and page 5 leaves its place for one of theirs.
  repair = plan(4 * kPage);
  ASSERT_TRUE(repair);
  EXPECT_EQ(text(*repair), "1:5 2:6 drop 4 at 0 in 5 calls");
}

TEST_F(RepairTest, GoesOnBehindTheEnd) {
  windows.add(0x1000, 16, {3, 5});
  const auto repair = plan(4 * kPage);
  ASSERT_TRUE(repair);
  EXPECT_EQ(text(*repair), "2:1 3:6 at 0 in 3 calls");
  windows.add(0x9000, 3, {3, 5});
  const std::vector<WindowId> tight = {1};
  EXPECT_FALSE(planner.plan_repair(4 * kPage, kOne, tight, 100));  // no room
}

TEST_F(RepairTest, FillsGaps) {
  windows.add(0x1000, 3, {3, 1, 5});
  windows.drop_page(0, 1);
  const auto repair = plan(3 * kPage);
  ASSERT_TRUE(repair);
  EXPECT_EQ(text(*repair), "1:6 at 0 in 2 calls");  // nothing to unmap
}

TEST_F(RepairTest, KeepsAwayFromLiveBlocks) {
  windows.add(0x1000, 5, {1, 2, 4, 3, 5});
  windows.at(0).live = {{2 * kPage + 3, 2}};  // a block in the third place
  EXPECT_EQ(text(*plan(2 * kPage)), "at 48 in 1 calls");
  EXPECT_FALSE(plan(3 * kPage));
}

TEST_F(RepairTest, UsesEdgesWhereWholePagesAreTooFew) {
  windows.add(0x1000, 16, {1, 2, 3, 4, 5});
  home.free(used[1], kOne, 1);        // page 2 is free,
  take_at(2 * kPage, 10);             // but for its first units
  home.free(used[2], kOne, 1);        // page 4 is free,
  take_at(4 * kPage + 6, kPage - 6);  // but for its last units
  const auto repair = plan(4 * kPage + 12);
  ASSERT_TRUE(repair);
  // 6 units of page 2, four whole pages, 6 units of page 4.
  EXPECT_EQ(repair->missing, 0U);
  EXPECT_EQ(repair->begin % kPage, 10U);
  std::set<PageId> pages;
  for (const auto& fill : repair->fills) pages.insert(fill.page);
  EXPECT_TRUE(pages.contains(2) && pages.contains(4) && pages.contains(6));
  EXPECT_FALSE(planner.plan_repair(4 * kPage + 13, kOne, std::vector<WindowId>{0}, 2));
}

TEST_F(WindowsTest, DroppedPagesAreNotUsed) {
  Windows windows(home, true);
  const WindowId id = windows.add(0x1000, 16, {1, 3, 5});
  windows.drop_page(id, 1);
  EXPECT_EQ(windows.mapped_pages(), 2U);
  EXPECT_TRUE(windows.find(kPage, kOne));
  EXPECT_FALSE(windows.find(kPage + 1, kOne));
  windows.remove(id);
  EXPECT_EQ(windows.mapped_pages(), 0U);
  EXPECT_EQ(windows.count(), 0U);
}

TEST_F(WindowsTest, TheLeastRecentlyUsedIdleWindowGoesFirst) {
  Windows windows(home, true);
  const WindowId a = windows.add(0x1000, 16, {1});
  const WindowId b = windows.add(0x2000, 16, {3});
  EXPECT_EQ(windows.least_recently_used(), a);
  windows.touch(a);
  EXPECT_EQ(windows.least_recently_used(), b);
  windows.at(b).live.push_back({0, 1});
  EXPECT_EQ(windows.least_recently_used(), a);
  windows.at(a).retired = true;
  EXPECT_FALSE(windows.least_recently_used());
}

}  // namespace
}  // namespace gapless
