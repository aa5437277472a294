// What the allocator relies on: aliases of a page, order across streams, mapping beside running
// work, memory that is shared or the host's. Needs no nvcc: memory is written and read by the
// driver's own memsets and copies.
#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <unistd.h>

#include "allocator/device/device_allocator.h"
#include "tests/gpu/gpu.h"

namespace gapless {
namespace {

using testing::Gpu;

TEST_F(Gpu, MemoryIsChargedAsOnTheSimulatedOne) {
  MemInfo before;
  MemInfo after;
  driver->mem_info(0, before);
  std::vector<MemHandle> handles;
  for (int i = 0; i < 64; ++i) handles.push_back(create(*driver));
  driver->mem_info(0, after);
  EXPECT_EQ(before.free_bytes - after.free_bytes, 64 * page);
  const DeviceAddress first = map(handles);
  const DeviceAddress second = map(handles);  // aliases cost no memory
  MemInfo mapped;
  driver->mem_info(0, mapped);
  EXPECT_LE(after.free_bytes - mapped.free_bytes, 2 * MiB);  // page tables at most
  unmap(first, 64);
  unmap(second, 64);
  for (const MemHandle handle : handles) driver->mem_release(handle);
  driver->mem_info(0, after);
  EXPECT_LE(before.free_bytes - after.free_bytes, 2 * MiB);
}

// --- what the windows rely on --------------------------------------------------------------------

TEST_F(Gpu, AliasesSeeEachOthersWritesInStreamOrder) {
  const MemHandle handle = create(*driver);
  const DeviceAddress one = map({handle});
  const DeviceAddress two = map({handle});
  const StreamHandle on = stream();
  for (std::uint32_t round = 1; round <= 50; ++round) {
    driver->memset_d32(0, one, round, page / 4, on);
    driver->memset_d32(0, two, round + 1000, page / 8, on);
    const auto seen = words(one, page, on);
    ASSERT_EQ(seen.front(), round + 1000);
    ASSERT_EQ(seen[page / 8 - 1], round + 1000);
    ASSERT_EQ(seen[page / 8], round);
    ASSERT_EQ(seen.back(), round);
  }
  driver->stream_destroy(0, on);
  unmap(one, 1);
  unmap(two, 1);
  driver->mem_release(handle);
}

// --- what sharing and spilling rely on -----------------------------------------------------------

TEST_F(Gpu, SharedMemoryIsTheSameMemory) {
  if (!properties.can_share_fd) GTEST_SKIP() << properties.name << " shares no descriptors";
  MemHandle own = 0;
  ASSERT_EQ(driver->mem_create(0, page, {.share = ShareType::fd}, own), DriverStatus::ok);
  SharedHandle shared;
  ASSERT_EQ(driver->mem_export(own, ShareType::fd, shared), DriverStatus::ok);
  EXPECT_GE(shared.fd, 0);
  MemHandle other = 0;
  ASSERT_EQ(driver->mem_import(0, shared, other), DriverStatus::ok);
  close(shared.fd);  // the import holds the memory
  const DeviceAddress one = map({own});
  const DeviceAddress two = map({other});
  driver->memset_d32(0, one, 4711, page / 4, 0);
  EXPECT_EQ(words(two, page).back(), 4711U);
  unmap(one, 1);
  EXPECT_EQ(driver->mem_release(own), DriverStatus::ok);
  driver->memset_d32(0, two, 42, page / 4, 0);  // it outlives its owner's hold
  EXPECT_EQ(words(two, page).front(), 42U);
  unmap(two, 1);
  EXPECT_EQ(driver->mem_release(other), DriverStatus::ok);
}

// Blocks of the allocator, in the home and in windows, opened at other addresses.
TEST_F(Gpu, SharedBlocksAreOpened) {
  if (!properties.can_share_fd) GTEST_SKIP() << properties.name << " shares no descriptors";
  Options options;
  DeviceAllocator allocator(*driver, 0, properties, options);
  std::vector<DeviceAddress> blocks(8, 0);
  for (DeviceAddress& block : blocks) ASSERT_EQ(allocator.alloc(page, 0, block), Status::ok);
  for (std::size_t i = 0; i < 8; i += 2) ASSERT_EQ(allocator.free(blocks[i]), Status::ok);
  DeviceAddress wide = 0;
  ASSERT_EQ(allocator.alloc(4 * page, 0, wide), Status::ok);
  for (std::uint32_t i = 0; i < 4; ++i) {
    driver->memset_d32(0, wide + i * page, 100 + i, page / 4, 0);
  }
  SharedBlock shared;
  ASSERT_EQ(allocator.share(wide, shared), Status::ok);
  ImportedBlock imported(*driver, 0);
  ASSERT_EQ(imported.open(shared), DriverStatus::ok);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(words(imported.address() + i * page, page).back(), 100 + i);
  }
  EXPECT_EQ(imported.close(), DriverStatus::ok);
  EXPECT_EQ(allocator.unshare(wide), Status::ok);
  EXPECT_EQ(allocator.free(wide), Status::ok);
  for (std::size_t i = 1; i < 8; i += 2) EXPECT_EQ(allocator.free(blocks[i]), Status::ok);
}

TEST_F(Gpu, HostMemoryIsMappedBesideDeviceMemory) {
  if (!properties.can_map_host) GTEST_SKIP() << properties.name << " maps no host memory";
  const MemHandle device = create(*driver);
  MemInfo before;
  driver->mem_info(0, before);
  MemHandle host = 0;
  ASSERT_EQ(driver->mem_create(0, page, {.on_host = true}, host), DriverStatus::ok);
  const DeviceAddress both = map({device, host, device});
  MemInfo after;
  driver->mem_info(0, after);
  EXPECT_LE(before.free_bytes - after.free_bytes, 2 * MiB);  // page tables at most
  driver->memset_d32(0, both + page / 2, 7, page / 2, 0);    // over the seam, and back
  const auto seen = words(both, 3 * page);
  EXPECT_EQ(seen[page / 8], 7U);
  EXPECT_EQ(seen[page / 4 + page / 8], 7U);
  EXPECT_EQ(seen[2 * page / 4 + page / 8], 7U);  // the device page once more
  unmap(both, 3);
  EXPECT_EQ(driver->mem_release(host), DriverStatus::ok);
  EXPECT_EQ(driver->mem_release(device), DriverStatus::ok);
}

TEST_F(Gpu, AliasesAreOrderedByEventsAcrossStreams) {
  const MemHandle handle = create(*driver);
  const DeviceAddress one = map({handle});
  const DeviceAddress two = map({handle});
  const StreamHandle first = stream();
  const StreamHandle second = stream();
  EventHandle event = 0;
  driver->event_create(0, event);
  for (std::uint32_t round = 1; round <= 50; ++round) {
    for (int i = 0; i < 20; ++i) driver->memset_d32(0, one, 7, page / 4, first);
    driver->memset_d32(0, one, round, page / 4, first);
    driver->event_record(0, event, first);
    driver->stream_wait_event(0, second, event);
    const auto seen = words(two, page, second);
    ASSERT_EQ(std::count(seen.begin(), seen.end(), round), static_cast<long>(seen.size()));
  }
  driver->event_destroy(0, event);
  driver->stream_destroy(0, first);
  driver->stream_destroy(0, second);
  unmap(one, 1);
  unmap(two, 1);
  driver->mem_release(handle);
}

// Edge sharing: two aliases of one page in use at once, on different 512 B units.
TEST_F(Gpu, DisjointPartsWrittenThroughTwoAliasesAtOnceStayRight) {
  const MemHandle handle = create(*driver);
  const DeviceAddress one = map({handle});
  const DeviceAddress two = map({handle});
  const StreamHandle first = stream();
  const StreamHandle second = stream();
  std::mt19937 random(1);
  for (std::uint32_t round = 1; round <= 300; ++round) {
    // A border at any unit, so that both sides share lines of every cache.
    const std::uint64_t border = (1 + random() % (page / 512 - 1)) * 512;
    for (int i = 0; i < 4; ++i) {
      driver->memset_d32(0, one, round, border / 4, first);
      driver->memset_d32(0, two + border, ~round, (page - border) / 4, second);
    }
    driver->stream_synchronize(0, first);
    driver->stream_synchronize(0, second);
    const auto seen = words(random() % 2 == 0 ? one : two, page);
    const auto low = seen.begin() + static_cast<long>(border / 4);
    ASSERT_EQ(std::count(seen.begin(), low, round), low - seen.begin()) << "round " << round;
    ASSERT_EQ(std::count(low, seen.end(), ~round), seen.end() - low) << "round " << round;
  }
  driver->stream_destroy(0, first);
  driver->stream_destroy(0, second);
  unmap(one, 1);
  unmap(two, 1);
  driver->mem_release(handle);
}

TEST_F(Gpu, MappingChangesBesideRunningWork) {
  const std::uint64_t pages = written(64);
  std::vector<MemHandle> handles;
  for (std::uint64_t i = 0; i < pages; ++i) handles.push_back(create(*driver));
  const DeviceAddress work = map(handles);
  const DeviceAddress beside = reserve(*driver, pages);
  const StreamHandle on = stream();
  EventHandle done = 0;
  driver->event_create(0, done);
  int beside_running = 0;
  const std::uint32_t rounds = times(20);
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    for (std::uint32_t i = 0; i < times(50); ++i)
      driver->memset_d32(0, work, round, pages * page / 4, on);
    driver->event_record(0, done, on);
    // Aliases of the pages being written come and go at other addresses.
    for (std::size_t i = 0; i < pages; ++i) {
      ASSERT_EQ(driver->mem_map(beside + i * page, page, handles[i]), DriverStatus::ok);
    }
    ASSERT_EQ(driver->mem_set_access(beside, pages * page, 0), DriverStatus::ok);
    ASSERT_EQ(driver->mem_unmap(beside, pages * page), DriverStatus::ok);
    if (driver->event_query(0, done) == DriverStatus::not_ready) ++beside_running;
    const auto seen = words(work, pages * page, on);
    ASSERT_EQ(std::count(seen.begin(), seen.end(), round), static_cast<long>(seen.size()));
  }
  fmt::print("the work was still running after the changes in {} of {} rounds\n", beside_running,
             rounds);
  driver->event_destroy(0, done);
  driver->stream_destroy(0, on);
  driver->address_free(beside, pages * page);
  unmap(work, pages);
  for (const MemHandle handle : handles) driver->mem_release(handle);
}

}  // namespace
}  // namespace gapless
