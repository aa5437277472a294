// What a tool is told of mappings and blocks that come and go in any order, against a model of
// single bytes.
#include "allocator/check/nvtx_memory.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/check/requested_checks.h"
#include "tests/support/nvtx_tool.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::NvtxTool;
using testing::ToldRange;

constexpr DeviceAddress kBase = 0x7000'0000'0000;
constexpr std::uint64_t kMapped = 16;  // bytes a mapping
constexpr std::size_t kMappings = 8;
constexpr std::size_t kBytes = kMapped * kMappings;

class NvtxMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!NvtxTool::is_there()) GTEST_SKIP() << NvtxTool::kMissing;
    tool_ = std::make_unique<NvtxTool>();
  }
  NvtxTool& tool() { return *tool_; }
  void map(std::size_t mapping) {
    memory.note_mapped(kBase + mapping * kMapped, kMapped);
    memory.note_access(kBase + mapping * kMapped, kMapped);
  }
  void unmap(std::size_t mapping, std::size_t count = 1) {
    memory.hide(kBase + mapping * kMapped, count * kMapped);
    memory.note_unmapped(kBase + mapping * kMapped, count * kMapped);
  }

  NvtxMemory memory;

 private:
  std::unique_ptr<NvtxTool> tool_;
};

TEST(NvtxOption, SaysWhereItWasNotBuilt) {
  RequestedChecks checks;
  std::string cause;
  const bool read = read_checks("poison+nvtx", checks, cause);
  EXPECT_EQ(read, nvtx::is_built());
  EXPECT_EQ(read, NvtxTool::is_there());
  if (read) {
    EXPECT_EQ(checks, (RequestedChecks{.poison = true, .nvtx = true}));
    EXPECT_EQ(text_of(checks), "poison+nvtx");
  } else {
    EXPECT_EQ(checks, RequestedChecks{});
    EXPECT_THAT(cause, HasSubstr("built without NVTX: its header nvtx3/nvToolsExtMem.h"));
  }
}

TEST_F(NvtxMemoryTest, ARegionLiesInOneHeap) {
  memory.begin(kBase + 8, 2 * kMapped, "block");
  EXPECT_THAT(tool().regions(), IsEmpty());
  map(0);
  map(1);
  map(2);
  EXPECT_THAT(tool().heaps(), ElementsAre(ToldRange{kBase, 16}, ToldRange{kBase + 16, 16},
                                          ToldRange{kBase + 32, 16}));
  EXPECT_THAT(tool().regions(), ElementsAre(ToldRange{kBase + 8, 8}, ToldRange{kBase + 16, 16},
                                            ToldRange{kBase + 32, 8}));
  unmap(1);
  EXPECT_THAT(tool().regions(), ElementsAre(ToldRange{kBase + 8, 8}, ToldRange{kBase + 32, 8}));
  memory.end(kBase + 8);
  EXPECT_THAT(tool().regions(), IsEmpty());
  unmap(0);
  unmap(2);
  EXPECT_THAT(tool().heaps(), IsEmpty());
  EXPECT_EQ(tool().mistakes(), "");
}

TEST_F(NvtxMemoryTest, NamesAreWhatToolsTake) {
  map(0);
  memory.begin(kBase, 4, "/home/someone/a/rather/long/folder/for/a/program/train.py:42 (step)");
  memory.begin(kBase + 4, 4, "für\n");
  EXPECT_THAT(tool().name_at(kBase), ::testing::EndsWith("/train.py:42 (step)"));
  EXPECT_EQ(tool().name_at(kBase).size(), nvtx::kMostName);
  EXPECT_EQ(tool().name_at(kBase + 4), "f??r?");
  EXPECT_EQ(tool().mistakes(), "");
}

TEST_F(NvtxMemoryTest, WhatIsMappedAndNotAccessibleIsNoHeap) {
  memory.note_mapped(kBase, kMapped);
  EXPECT_THAT(tool().heaps(), IsEmpty());
  memory.hide(kBase, kMapped);
  memory.show(kBase, kMapped);  // the driver refused to unmap it
  EXPECT_THAT(tool().heaps(), IsEmpty());
  memory.note_access(kBase, kMapped);
  memory.hide(kBase, kMapped);
  EXPECT_THAT(tool().heaps(), IsEmpty());
  memory.show(kBase, kMapped);
  EXPECT_THAT(tool().heaps(), ElementsAre(ToldRange{kBase, kMapped}));
}

// Random calls; the model says of each byte whether it is a heap's, and why it may be touched.
class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t bound) { return random_() % bound; }

 private:
  std::minstd_rand random_;
};

TEST_F(NvtxMemoryTest, RegionsAreWhatBlocksAndHeapsHaveInCommon) {
  constexpr int kFree = -1;
  constexpr int kLive = -2;  // else the group that it is kept in
  Random draw(11);
  std::array<bool, kMappings> mapped{};
  std::array<int, kBytes> state{};
  state.fill(kFree);
  std::map<std::size_t, std::size_t> live;  // begin -> bytes
  for (int i = 0; i < 20000; ++i) {
    switch (draw.below(7)) {
      case 0: {
        const std::size_t mapping = draw.below(kMappings);
        if (!mapped[mapping]) map(mapping);
        mapped[mapping] = true;
        break;
      }
      case 1: {  // some neighbours at once
        std::size_t first = draw.below(kMappings);
        std::size_t end = first;
        while (end < kMappings && mapped[end] && draw.below(3) != 0) mapped[end++] = false;
        if (end == first) break;
        unmap(first, end - first);
        for (std::size_t at = first * kMapped; at < end * kMapped; ++at) {
          if (state[at] == 0) state[at] = kFree;  // what is a pool's may come back
        }
        break;
      }
      case 2:
      case 3: {
        const std::size_t begin = draw.below(kBytes);
        const std::size_t bytes = 1 + draw.below(std::min<std::size_t>(40, kBytes - begin));
        const auto first = state.begin() + static_cast<std::ptrdiff_t>(begin);
        if (std::find(first, first + static_cast<std::ptrdiff_t>(bytes), kLive) !=
            first + static_cast<std::ptrdiff_t>(bytes)) {
          break;
        }
        memory.begin(kBase + begin, bytes, "block");
        std::fill_n(first, bytes, kLive);
        live[begin] = bytes;
        break;
      }
      case 4:
      case 5: {
        if (live.empty()) break;
        const auto gone = std::next(live.begin(), static_cast<long>(draw.below(live.size())));
        const std::size_t group = draw.below(6);
        group < 3 ? memory.keep(kBase + gone->first, static_cast<NvtxMemory::Group>(group))
                  : memory.end(kBase + gone->first);
        std::fill_n(state.begin() + static_cast<std::ptrdiff_t>(gone->first), gone->second,
                    group < 3 ? static_cast<int>(group) : kFree);
        live.erase(gone);
        break;
      }
      default: {
        const auto group = static_cast<int>(draw.below(3));
        const bool moves = draw.below(2) == 0;
        const int to = moves ? (group + 1) % 3 : kFree;
        moves
            ? memory.move(static_cast<NvtxMemory::Group>(group), static_cast<NvtxMemory::Group>(to))
            : memory.forget(static_cast<NvtxMemory::Group>(group));
        std::replace(state.begin(), state.end(), group, to);
      }
    }
    std::array<bool, kBytes> told{};
    const auto look = [&] {
      told.fill(false);
      for (const ToldRange& region : tool().regions()) {
        for (std::uint64_t at = 0; at < region.bytes; ++at)
          told[region.address - kBase + at] = true;
      }
    };
    look();
    for (std::size_t at = 0; at < kBytes; ++at) {
      ASSERT_EQ(told[at], mapped[at / kMapped] && state[at] != kFree) << "call " << i << ", " << at;
    }
    if (i % 8 == 0) {
      const std::size_t begin = draw.below(kBytes);
      const std::size_t bytes = 1 + draw.below(kBytes - begin);
      {
        const auto opened = memory.open(kBase + begin, bytes);
        look();
        for (std::size_t at = begin; at < begin + bytes; ++at) {
          ASSERT_EQ(told[at], mapped[at / kMapped]) << "call " << i << ", " << at;
        }
      }
      look();
      for (std::size_t at = 0; at < kBytes; ++at) {
        ASSERT_EQ(told[at], mapped[at / kMapped] && state[at] != kFree) << "call " << i;
      }
    }
    ASSERT_EQ(tool().mistakes(), "") << "call " << i;
  }
}

}  // namespace
}  // namespace gapless
