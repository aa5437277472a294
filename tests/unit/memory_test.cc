#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/driver/faulty_driver.h"
#include "allocator/memory/address_space.h"
#include "allocator/memory/physical_memory.h"
#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

constexpr std::uint64_t kPage = 2 * MiB;

class Memory : public ::testing::Test {
 protected:
  simgpu::SimDriver gpu{{.devices = {{.total_bytes = 8 * kPage}}}};
  FaultyDriver driver{gpu};
};

TEST_F(Memory, CreatesAllOrNothing) {
  PhysicalMemory memory(driver, 0);
  std::vector<MemoryPiece> six(6, {kPage});
  EXPECT_EQ(memory.create(six), DriverStatus::ok);
  std::vector<MemoryPiece> three(3, {kPage});
  EXPECT_EQ(memory.create(three), DriverStatus::out_of_memory);
  EXPECT_EQ(gpu.used_bytes(0), 6 * kPage);
  EXPECT_EQ(memory.reserved_bytes(), 6 * kPage);
  memory.release(six);
  EXPECT_EQ(gpu.used_bytes(0), 0U);
}

TEST_F(Memory, KeepsTheLimitWithoutAskingTheDriver) {
  PhysicalMemory memory(driver, 0);
  memory.set_limit_bytes(2 * kPage + 5);
  std::vector<MemoryPiece> three(3, {kPage});
  EXPECT_EQ(memory.create(three), DriverStatus::out_of_memory);
  EXPECT_EQ(memory.create(std::span(three).first(2)), DriverStatus::ok);
  EXPECT_FALSE(memory.within_limit(kPage));
  EXPECT_TRUE(memory.within_limit(5));
}

TEST_F(Memory, HasPiecesOfSeveralSizes) {
  PhysicalMemory memory(driver, 0);
  AddressSpace space(driver, 0, 8 * kPage);
  std::vector<MemoryPiece> pieces = {{kPage}, {2 * kPage}, {kPage}};
  ASSERT_EQ(memory.create(pieces), DriverStatus::ok);
  EXPECT_EQ(memory.reserved_bytes(), 4 * kPage);
  EXPECT_EQ(memory.created(), 3U);
  DeviceAddress address = 0;
  ASSERT_EQ(space.take(4 * kPage, address), DriverStatus::ok);
  // Two of three are mapped, side by side, when it fails: both are unmapped again.
  driver.fail({.kind = DriverCall::mem_map, .nth = 3, .status = DriverStatus::unknown});
  EXPECT_EQ(space.map(address, pieces), DriverStatus::unknown);
  EXPECT_FALSE(gpu.resolve(0, address + 2 * kPage, 512));
  EXPECT_EQ(space.map(address, pieces), DriverStatus::ok);
  EXPECT_TRUE(gpu.resolve(0, address + 4 * kPage - 512, 512));
  EXPECT_EQ(space.unmap(address, 4 * kPage), DriverStatus::ok);
  memory.release(std::span(pieces).first(2));
  EXPECT_EQ(memory.reserved_bytes(), kPage);
  memory.release(std::span(pieces).last(1));
  EXPECT_EQ(space.release_all(), DriverStatus::ok);
  EXPECT_EQ(gpu.leaks(), "");
}

TEST_F(Memory, CountsWhatTheDriverWouldNotRelease) {
  PhysicalMemory memory(driver, 0);
  std::vector<MemoryPiece> two(2, {kPage});
  ASSERT_EQ(memory.create(two), DriverStatus::ok);
  driver.fail({.kind = DriverCall::mem_release, .nth = 1, .status = DriverStatus::unknown});
  memory.release(two);
  EXPECT_EQ(memory.reserved_bytes(), kPage);
  EXPECT_EQ(memory.unreleased(), 1U);
  memory.retry_releases();
  EXPECT_EQ(memory.reserved_bytes(), 0U);
  EXPECT_EQ(gpu.leaks(), "");
}

TEST_F(Memory, AddressesThatTheDriverWouldNotTakeAreToldAndGivenBackLater) {
  AddressSpace space(driver, 0, 8 * kPage);
  DeviceAddress address = 0;
  ASSERT_EQ(space.take(kPage, address), DriverStatus::ok);
  driver.fail({.kind = DriverCall::address_free, .nth = 1, .status = DriverStatus::unknown});
  EXPECT_EQ(space.release_all(), DriverStatus::unknown);
  EXPECT_EQ(space.reserved_bytes(), 8 * kPage);
  EXPECT_EQ(space.release_all(), DriverStatus::ok);
  EXPECT_EQ(space.reserved_bytes(), 0U);
  EXPECT_EQ(gpu.leaks(), "");
}

TEST_F(Memory, AddressesAreBounded) {
  AddressSpace space(driver, 0, 8 * kPage, 12 * kPage);
  DeviceAddress first = 0;
  DeviceAddress second = 0;
  DeviceAddress none = 0;
  ASSERT_EQ(space.take(6 * kPage, first), DriverStatus::ok);
  EXPECT_EQ(space.reserved_bytes(), 8 * kPage);
  EXPECT_EQ(space.taken_bytes(), 6 * kPage);
  EXPECT_EQ(space.take(5 * kPage, none), DriverStatus::out_of_memory);  // four are left
  ASSERT_EQ(space.take(4 * kPage, second), DriverStatus::ok);           // less than usual
  EXPECT_EQ(space.reserved_bytes(), 12 * kPage);
  space.put_back(first, 6 * kPage);
  EXPECT_EQ(space.taken_bytes(), 4 * kPage);
  EXPECT_EQ(space.take(8 * kPage, first), DriverStatus::ok);
  EXPECT_EQ(space.release_all(), DriverStatus::ok);
  EXPECT_EQ(space.reserved_bytes(), 0U);
  EXPECT_EQ(space.taken_bytes(), 0U);
}

TEST_F(Memory, FewerAddressesAreReservedWhereTheDriverHasFew) {
  simgpu::SimDriver tight({.devices = {{.total_bytes = 64 * MiB}}, .address_bytes = 10 * kPage});
  AddressSpace space(tight, 0, 8 * kPage);
  DeviceAddress address = 0;
  ASSERT_EQ(space.take(8 * kPage, address), DriverStatus::ok);
  ASSERT_EQ(space.take(2 * kPage, address), DriverStatus::ok);
  EXPECT_EQ(space.reserved_bytes(), 10 * kPage);
  EXPECT_EQ(space.take(kPage, address), DriverStatus::out_of_memory);
  EXPECT_EQ(space.release_all(), DriverStatus::ok);
  EXPECT_EQ(tight.leaks(), "");
}

TEST_F(Memory, AddressesAreCutAndJoined) {
  AddressSpace space(driver, 0, 8 * kPage);
  DeviceAddress a = 0;
  DeviceAddress b = 0;
  DeviceAddress c = 0;
  ASSERT_EQ(space.take(2 * kPage, a), DriverStatus::ok);
  ASSERT_EQ(space.take(3 * kPage, b), DriverStatus::ok);
  EXPECT_EQ(b, a + 2 * kPage);
  space.put_back(a, 2 * kPage);
  ASSERT_EQ(space.take(kPage, c), DriverStatus::ok);
  EXPECT_EQ(c, a);
  space.put_back(b, 3 * kPage);
  space.put_back(c, kPage);
  ASSERT_EQ(space.take(8 * kPage, a), DriverStatus::ok);
  EXPECT_EQ(a, c);                                         // all in one piece again
  ASSERT_EQ(space.take(20 * kPage, b), DriverStatus::ok);  // more than a reservation holds
  space.put_back(a, 8 * kPage);
  space.put_back(b, 20 * kPage);
  EXPECT_EQ(space.release_all(), DriverStatus::ok);
  EXPECT_EQ(gpu.leaks(), "");
}

TEST_F(Memory, MapsAllOrNothingWhicheverCallFails) {
  for (const DriverCall call : {DriverCall::mem_map, DriverCall::mem_set_access}) {
    for (std::uint64_t nth = 1; nth <= 3; ++nth) {
      PhysicalMemory memory(driver, 0);
      AddressSpace space(driver, 0, 8 * kPage);
      std::vector<MemoryPiece> handles(3, {kPage});
      DeviceAddress address = 0;
      ASSERT_EQ(memory.create(handles), DriverStatus::ok);
      ASSERT_EQ(space.take(3 * kPage, address), DriverStatus::ok);
      driver.fail({.kind = call, .nth = nth, .status = DriverStatus::unknown});
      const DriverStatus status = space.map(address, handles);
      EXPECT_EQ(status != DriverStatus::ok, driver.fired() != 0);
      if (status == DriverStatus::ok) space.unmap(address, 3 * kPage);
      driver.heal();
      EXPECT_FALSE(gpu.resolve(0, address, 512));
      EXPECT_FALSE(space.has_leftover(address, 3 * kPage));
      memory.release(handles);
      EXPECT_EQ(space.release_all(), DriverStatus::ok);
      EXPECT_EQ(gpu.leaks(), "");
    }
  }
}

TEST_F(Memory, RemembersWhatItCouldNotUndo) {
  PhysicalMemory memory(driver, 0);
  AddressSpace space(driver, 0, 8 * kPage);
  std::vector<MemoryPiece> handles(2, {kPage});
  DeviceAddress address = 0;
  ASSERT_EQ(memory.create(handles), DriverStatus::ok);
  ASSERT_EQ(space.take(2 * kPage, address), DriverStatus::ok);
  // From the third call on everything fails: two maps, then set_access and the unmap.
  driver.fail({.kind = {}, .nth = 3, .status = DriverStatus::unknown, .persistent = true});
  EXPECT_EQ(space.map(address, handles), DriverStatus::unknown);
  EXPECT_TRUE(space.has_leftover(address + kPage, kPage));
  EXPECT_FALSE(space.clear_leftovers());
  driver.heal();
  EXPECT_TRUE(space.clear_leftovers());
  memory.release(handles);
  EXPECT_EQ(space.release_all(), DriverStatus::ok);
  EXPECT_EQ(gpu.leaks(), "");
}

}  // namespace
}  // namespace gapless
