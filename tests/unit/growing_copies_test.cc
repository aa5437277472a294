// Blocks that are copied into slightly larger ones, as concatenation grows a key-value cache.
#include "allocator/heap/growing_copies.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

constexpr Unit kBlock = 6 * 2048;  // 6 MiB

void copy(GrowingCopies& copies, Unit size, Unit more) {
  copies.note_made(size + more);
  copies.note_freed(size);
}

GrowingCopies after_copies(int count, Unit more) {
  GrowingCopies copies;
  for (int i = 0; i < count; ++i) copy(copies, kBlock, more);
  return copies;
}

TEST(GrowingCopiesTest, PrevailAfterSomeHundred) {
  EXPECT_FALSE(after_copies(100, 8).prevail());
  EXPECT_TRUE(after_copies(200, 8).prevail());
  EXPECT_NEAR(after_copies(200, 8).mean_size(), kBlock, 1);
}

TEST(GrowingCopiesTest, AreNeitherEqualNorSmallerNorMuchLarger) {
  EXPECT_FALSE(after_copies(1000, 0).prevail());
  EXPECT_FALSE(after_copies(1000, 0 - Unit{8}).prevail());
  EXPECT_FALSE(after_copies(1000, kBlock / 16 + 1).prevail());
  EXPECT_TRUE(after_copies(1000, kBlock / 16).prevail());
}

TEST(GrowingCopiesTest, SweepWhileTheLastBlockFreedWasCopied) {
  GrowingCopies copies = after_copies(100, 8);
  EXPECT_FALSE(copies.sweep());  // they do not prevail yet
  copies = after_copies(1000, 8);
  EXPECT_TRUE(copies.sweep());
  copies.note_made(3 * kBlock);  // temporaries of the next request's prompt
  copies.note_made(2 * kBlock);
  copies.note_freed(3 * kBlock);
  EXPECT_FALSE(copies.sweep());
  EXPECT_TRUE(copies.prevail());
  copy(copies, kBlock, 8);
  EXPECT_TRUE(copies.sweep());
}

// A workspace for each matrix product: PyTorch 2.15 has one of 8 MiB.
TEST(GrowingCopiesTest, GoOnBesideTemporaries) {
  GrowingCopies copies;
  for (int i = 0; i < 1000; ++i) {
    for (int product = 0; product < 4; ++product) {
      copies.note_made(2 * kBlock);
      copies.note_freed(2 * kBlock);
      EXPECT_EQ(copies.sweep(), i >= 178);
    }
    copy(copies, kBlock, 8);
  }
}

TEST(GrowingCopiesTest, MayBeMadeSeveralAtATime) {
  GrowingCopies copies;
  for (int i = 0; i < 200; ++i) {
    for (int made = 0; made < 4; ++made) copies.note_made(made == 0 ? kBlock + 8 : 3 * kBlock);
    copies.note_freed(kBlock);
  }
  EXPECT_TRUE(copies.prevail());
}

TEST(GrowingCopiesTest, AreForgotten) {
  GrowingCopies copies = after_copies(1000, 8);
  for (int i = 0; i < 300; ++i) copies.note_freed(kBlock);  // made: the last four, still
  EXPECT_TRUE(copies.prevail());
  for (int i = 0; i < 400; ++i) {
    copies.note_made(2 * kBlock);
    copies.note_freed(kBlock);
  }
  EXPECT_FALSE(copies.prevail());
}

TEST(GrowingCopiesTest, TakeSmallSharesOfOthersForWhatTheyAre) {
  GrowingCopies copies;
  for (int i = 0; i < 4000; ++i) {  // one free in three
    copy(copies, kBlock, 8);
    for (int other = 0; other < 2; ++other) {
      for (int made = 0; made < 4; ++made) copies.note_made(kBlock / 2);
      copies.note_freed(kBlock / 3);
    }
  }
  EXPECT_FALSE(copies.prevail());
}

// Requests of many lengths at a time, whose caches of two blocks per layer grow by a token a step.
class ServingBench : public testing::OnDevice {
 protected:
  static constexpr int kLayers = 24;
  static constexpr std::uint64_t kTokenBytes = 4 * KiB;
  std::uint64_t workspace_bytes = 0;  // of each layer's matrix products, as in PyTorch 2.15

  struct Request {
    std::uint64_t tokens = 0;
    std::uint64_t last = 0;
    std::vector<DeviceAddress> blocks = std::vector<DeviceAddress>(2 * kLayers);
  };

  DeviceAddress make(std::uint64_t bytes) {
    DeviceAddress address = 0;
    EXPECT_EQ(allocator->alloc(bytes, 0, address), Status::ok) << allocator->last_failure();
    return address;
  }
  void drop(DeviceAddress address) { EXPECT_EQ(allocator->free(address), Status::ok); }
  void step(Request& request) {
    const bool begins = request.blocks[0] == 0;
    ++request.tokens;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      if (workspace_bytes != 0) drop(make(workspace_bytes));
      DeviceAddress copies[2];
      for (DeviceAddress& made : copies) made = make(request.tokens * kTokenBytes);
      for (std::size_t i = 0; i < 2; ++i) {
        if (!begins) drop(request.blocks[2 * layer + i]);
        request.blocks[2 * layer + i] = copies[i];
      }
    }
  }
  void serve(int steps) {
    std::mt19937 random(1);
    std::vector<Request> requests;
    for (int i = 0; i < steps; ++i) {
      if (requests.size() < 12) {
        const std::uint64_t tokens = 300 + random() % 1700;
        requests.push_back({.tokens = tokens, .last = tokens + 50 + random() % 150});
      }
      for (Request& request : requests) step(request);
      std::erase_if(requests, [this](const Request& request) {
        if (request.tokens < request.last) return false;
        for (const DeviceAddress block : request.blocks) drop(block);
        return true;
      });
      if (i % 8 == 0) allocator->validate();
    }
    for (const Request& request : requests) {
      for (const DeviceAddress block : request.blocks) drop(block);
    }
  }
  [[nodiscard]] double overhead_percent() const {
    const auto statistics = allocator->statistics();
    return (static_cast<double>(statistics.reserved_bytes.all.peak) /
                static_cast<double>(statistics.allocated_bytes.all.peak) -
            1) *
           100;
  }
};

// What a run needs: memory above the peak, and pages mapped in windows.
struct Outcome {
  double percent = 0;
  std::uint64_t mapped = 0;
};

TEST_F(ServingBench, SweepsWithOneGapWhereItMayGrowALittle) {
  const auto run = [this](const std::string& settings, std::uint64_t workspace = 0) {
    workspace_bytes = workspace;
    start({.capacity = 16 * GiB, .settings = settings});
    const DeviceAddress weights = make(3 * GiB);
    serve(60);
    drop(weights);
    const Outcome outcome{overhead_percent(),
                          calls(DriverCall::mem_map) - calls(DriverCall::mem_create)};
    TearDown();
    return outcome;
  };
  const Outcome with = run("");
  const Outcome without = run("copies_slack:0");  // full of windows before a sweep can begin
  const Outcome beside = run("", 8320 * KiB);
  EXPECT_LT(with.percent, 1);
  EXPECT_LT(beside.percent, 1);
  EXPECT_GT(without.percent, 2.5);
  EXPECT_LT(with.mapped, 300U);
  EXPECT_LT(beside.mapped, 300U);
  EXPECT_GT(without.mapped, 3000U);
}

}  // namespace
}  // namespace gapless
