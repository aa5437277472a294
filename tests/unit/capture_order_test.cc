// What the order of a graph proves, and what it does not: blocks with uses that no graph shows.
#include "allocator/stream/capture_order.h"

#include <array>

#include <gtest/gtest.h>

#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

// Streams `one` and `two` are captured into one graph, `two` after all that `one` was given.
class CaptureOrderTest : public ::testing::Test {
 protected:
  static constexpr Owner kOwner = 7;
  static constexpr BlockId kBlock = 3;

  CaptureOrderTest() {
    for (DeviceStream* stream : {&one, &two, &outside}) gpu.stream_create(0, stream->handle);
    gpu.begin_capture(0, one.handle);
    work(one);
  }
  ~CaptureOrderTest() override {
    gpu.order(0, two.handle, one.handle);
    (void)gpu.end_capture(one.handle);
  }
  void work(const DeviceStream& stream) { gpu.launch(0, stream.handle, 1000, {}); }
  void join() {
    gpu.order(0, one.handle, two.handle);
    work(two);
  }
  template <class... Streams>
  void free(BlockId block, Epoch epoch, const Streams&... streams) {
    const std::array<DeviceStream, sizeof...(streams)> users{streams...};
    order.note_free(block, kOwner, epoch, users);
  }

  simgpu::SimDriver gpu;
  DeviceStream one;
  DeviceStream two;
  DeviceStream outside;
  CaptureOrder order{gpu};
};

TEST_F(CaptureOrderTest, WhatCameBeforeIsDone) {
  order.note_made(kBlock, one);
  free(kBlock, 5, one);
  EXPECT_EQ(order.before(two, kOwner), 0U);  // captures nothing yet
  join();
  EXPECT_EQ(order.before(two, kOwner), 5U);
  EXPECT_EQ(order.before(outside, kOwner), 0U);
  order.forget();
  EXPECT_EQ(order.before(two, kOwner), 0U);
}

// Recorded on a stream that does not capture: no node of the graph stands for that use.
TEST_F(CaptureOrderTest, AUseOutsideOfTheCaptureProvesNothing) {
  order.note_made(kBlock, one);
  free(kBlock, 5, one, outside);
  join();
  EXPECT_EQ(order.before(two, kOwner), 0U);
}

// A block from before the capture, then one of the capture, both the same owner's: that the second
// is done says nothing of the first.
TEST_F(CaptureOrderTest, WhatIsUnknownStaysSo) {
  free(kBlock, 4, one);
  order.note_made(kBlock + 1, one);
  free(kBlock + 1, 5, one);
  join();
  EXPECT_EQ(order.before(two, kOwner), 0U);
}

// Where streams of two captures used a block, neither graph shows both uses.
TEST_F(CaptureOrderTest, AUseInAnotherCaptureProvesNothing) {
  order.note_made(kBlock, one);
  gpu.begin_capture(0, outside.handle);
  free(kBlock, 5, one, outside);
  join();
  EXPECT_EQ(order.before(two, kOwner), 0U);
  EXPECT_EQ(order.before(outside, kOwner), 0U);
  (void)gpu.end_capture(outside.handle);
}

}  // namespace
}  // namespace gapless
