// Several streams on a device that is all but full: wholly free pages are spared for what needs
// them.
//
//   MiB   0      2.25  4        6       7.75     10                         64
//         [ live ][ 1.75 ][ live ][ 1.75 ][ live ][ free                    ]
//
// 5.5 MiB fit into the large hole, where they break three of its pages, and into a window over the
// two pieces and one page of it.
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

constexpr std::uint64_t kRequest = 11 * MiB / 2;

class FullDevice : public testing::OnDevice {
 protected:
  void start_on(std::uint64_t capacity, const std::string& settings = "stream_budget:0",
                std::uint64_t of_others = 0) {
    start({.capacity = capacity, .settings = settings});
    if (of_others != 0) gpu->mem_create(0, of_others, {}, others);
    if (second_stream) free(alloc(512, side));
    live.push_back(alloc(9 * MiB / 4));
    const DeviceAddress suffix = alloc(7 * MiB / 4);
    live.push_back(alloc(2 * MiB));
    const DeviceAddress prefix = alloc(7 * MiB / 4);
    live.push_back(alloc(9 * MiB / 4));
    large = alloc(54 * MiB);
    for (const DeviceAddress address : {suffix, prefix, large}) free(address);
    ASSERT_EQ(reserved(), 64 * MiB);
    maps = calls(DriverCall::mem_map);
  }
  [[nodiscard]] std::uint64_t new_maps() const { return calls(DriverCall::mem_map) - maps; }
  void TearDown() override {
    for (const DeviceAddress address : live) free(address);
    OnDevice::TearDown();
  }

  bool second_stream = true;
  std::vector<DeviceAddress> live;
  DeviceAddress large = 0;
  MemHandle others = 0;
  std::uint64_t maps = 0;
};

TEST_F(FullDevice, PiecesOfPagesAreUsedBeforeWholePages) {
  start_on(64 * MiB);
  const DeviceAddress request = alloc(kRequest);
  EXPECT_EQ(new_maps(), 3U);
  free(alloc(52 * MiB));  // all other pages of the hole are whole still
  free(request);
  EXPECT_EQ(alloc(kRequest), request);  // the same window again
  EXPECT_EQ(new_maps(), 3U);
  free(request);
}

TEST_F(FullDevice, TheLimitIsAsGoodAsTheDevicesEnd) {
  start_on(128 * MiB, "stream_budget:0,limit:64MiB");
  live.push_back(alloc(kRequest));
  EXPECT_EQ(new_maps(), 3U);
}

TEST_F(FullDevice, WithRoomLeftTheHoleIsTaken) {
  start_on(128 * MiB);
  EXPECT_EQ(alloc(kRequest), large);
  EXPECT_EQ(new_maps(), 0U);
  free(large);
}

TEST_F(FullDevice, WhatOthersGaveBackIsRoomAgain) {
  start_on(96 * MiB, "stream_budget:0", 32 * MiB);
  gpu->mem_release(others);
  EXPECT_EQ(alloc(kRequest), large);
  EXPECT_EQ(new_maps(), 0U);
  free(large);
}

TEST_F(FullDevice, ADeviceThatDoesNotSayHowMuchItHasIsAsFullAsItWas) {
  start_on(64 * MiB);
  faults->fail({.kind = DriverCall::mem_info, .nth = 1, .persistent = true});
  live.push_back(alloc(kRequest));
  EXPECT_EQ(faults->fired(), 1U);
  EXPECT_EQ(new_maps(), 3U);
}

TEST_F(FullDevice, OneStreamKeepsToTheHolesItComesBackTo) {
  second_stream = false;
  start_on(64 * MiB);
  const std::uint64_t asked = calls(DriverCall::mem_info);
  EXPECT_EQ(alloc(kRequest), large);
  EXPECT_EQ(calls(DriverCall::mem_info), asked);
  free(large);
}

TEST_F(FullDevice, ADriverThatRefusesTheWindowCostsNothing) {
  for (const DriverCall call : {DriverCall::mem_map, DriverCall::mem_set_access}) {
    SCOPED_TRACE(name_of(call));
    start_on(64 * MiB);
    faults->fail({.kind = call, .nth = 1, .status = DriverStatus::unknown});
    EXPECT_EQ(alloc(kRequest), large);
    EXPECT_EQ(faults->fired(), 1U);
    faults->heal();
    free(large);
    const DeviceAddress request = alloc(kRequest);
    EXPECT_NE(request, large);
    free(request);
    for (const DeviceAddress address : std::exchange(live, {})) free(address);
    testing::OnDevice::TearDown();
  }
}

}  // namespace
}  // namespace gapless
