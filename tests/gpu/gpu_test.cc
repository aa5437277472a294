// The real driver against the simulated one, where there is a GPU. Skipped, with the reason, where
// there is none. Needs no nvcc: memory is written and read by the driver's own memsets and copies.
//
// GAPLESS_GPU_TEST=simulated runs these tests on the simulated GPU instead: it shows that the tests
// themselves are right where there is no GPU.
#include "tests/gpu/gpu.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"
#include "allocator/driver/counting_driver.h"

namespace gapless {
namespace {

using testing::Gpu;

// --- the same calls, the same answers ------------------------------------------------------------

TEST_F(Gpu, AnswersAsTheSimulatedOne) {
  using Answers = std::vector<std::pair<std::string, DriverStatus>>;
  const auto script = [&](Driver& on) {
    Answers answers;
    const auto note = [&](const char* what, DriverStatus status) {
      answers.emplace_back(what, status);
    };
    const DeviceAddress range = reserve(on, 8);
    const MemHandle a = create(on);
    const MemHandle b = create(on);
    MemHandle none = 0;
    note("create 0 bytes", on.mem_create(0, 0, none));
    note("create a page and a byte", on.mem_create(0, page + 1, none));
    note("create on a device there is not", on.mem_create(77, page, none));
    note("map", on.mem_map(range, page, a));
    note("double map", on.mem_map(range, page, b));
    note("map the same handle again", on.mem_map(range + page, page, a));
    note("map where nothing is reserved", on.mem_map(0x1000 * page, page, b));
    note("access over a gap", on.mem_set_access(range, 3 * page, 0));
    note("access", on.mem_set_access(range, 2 * page, 0));
    note("access again", on.mem_set_access(range, 2 * page, 0));
    note("map a third", on.mem_map(range + 2 * page, page, b));
    note("unmap three mappings at once", on.mem_unmap(range, 3 * page));
    note("unmap what is not mapped", on.mem_unmap(range, page));
    note("map after unmap", on.mem_map(range, page, b));
    note("release while mapped", on.mem_release(b));
    note("access after release", on.mem_set_access(range, page, 0));
    note("write after release", on.memset_d32(0, range, 5, page / 4, 0));
    note("wait", on.device_synchronize(0));
    note("unmap", on.mem_unmap(range, page));
    note("release", on.mem_release(a));
    note("free a part of a reservation", on.address_free(range, page));
    note("free the reservation", on.address_free(range, 8 * page));
    EventHandle event = 0;
    note("event", on.event_create(0, event));
    note("query an event never recorded", on.event_query(0, event));
    note("record", on.event_record(0, event, 0));
    note("synchronize", on.event_synchronize(0, event));
    note("query", on.event_query(0, event));
    note("destroy", on.event_destroy(0, event));
    return answers;
  };
  simgpu::SimDriver simulated(
      {.devices = {{.total_bytes = properties.total_bytes, .granularity_bytes = page}}});
  const Answers expected = script(simulated);
  const Answers found = script(*driver);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].second, expected[i].second)
        << found[i].first << ": " << properties.name << " says " << to_string(found[i].second)
        << ", the simulated GPU " << to_string(expected[i].second);
  }
}

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
  options.slack = 0;
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
  std::vector<MemHandle> handles;
  for (int i = 0; i < 64; ++i) handles.push_back(create(*driver));
  const DeviceAddress work = map(handles);
  const DeviceAddress beside = reserve(*driver, 64);
  const StreamHandle on = stream();
  EventHandle done = 0;
  driver->event_create(0, done);
  int beside_running = 0;
  const std::uint32_t rounds = times(20);
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    for (std::uint32_t i = 0; i < times(50); ++i)
      driver->memset_d32(0, work, round, 64 * page / 4, on);
    driver->event_record(0, done, on);
    // Aliases of the pages being written come and go at other addresses.
    for (std::size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(driver->mem_map(beside + i * page, page, handles[i]), DriverStatus::ok);
    }
    ASSERT_EQ(driver->mem_set_access(beside, 64 * page, 0), DriverStatus::ok);
    ASSERT_EQ(driver->mem_unmap(beside, 64 * page), DriverStatus::ok);
    if (driver->event_query(0, done) == DriverStatus::not_ready) ++beside_running;
    const auto seen = words(work, 64 * page, on);
    ASSERT_EQ(std::count(seen.begin(), seen.end(), round), static_cast<long>(seen.size()));
  }
  fmt::print("the work was still running after the changes in {} of {} rounds\n", beside_running,
             rounds);
  driver->event_destroy(0, done);
  driver->stream_destroy(0, on);
  driver->address_free(beside, 64 * page);
  unmap(work, 64);
  for (const MemHandle handle : handles) driver->mem_release(handle);
}

// --- the allocator on real memory
// -----------------------------------------------------------------

// Random programs whose blocks are filled with a mark each; every block still holds its own mark
// when it is freed. Windows and edges included: the limit is tight.
TEST_F(Gpu, ModelOnRealMemory) {
  const std::uint32_t steps = times(6000);
  for (const bool edges : {true, false}) {
    Options options;
    options.limit = 256 * MiB;
    options.edge_sharing = edges;
    DeviceAllocator allocator(*driver, 0, properties, options);
    const StreamHandle streams[] = {0, stream(), stream()};
    struct Live {
      DeviceAddress address;
      std::uint64_t bytes;
      std::uint32_t mark;
      StreamHandle stream;
    };
    std::vector<Live> live;
    std::mt19937_64 random(edges ? 1 : 2);
    std::uint64_t refused = 0;
    std::uint64_t checked = 0;
    const auto check_and_free = [&](std::size_t index) {
      const Live block = live[index];
      live[index] = live.back();
      live.pop_back();
      // First, last and a word from every 64 KiB or so.
      for (std::uint64_t at = 0; at < block.bytes / 4; at += 16384 - at % 3) {
        std::uint32_t word = 0;
        ASSERT_EQ(driver->copy_to_host(0, &word, block.address + at * 4, 4, block.stream),
                  DriverStatus::ok);
        ASSERT_EQ(word, block.mark) << "block of " << block.bytes << " at word " << at;
        ++checked;
      }
      std::uint32_t last = 0;
      driver->copy_to_host(0, &last, block.address + block.bytes / 4 * 4 - 4, 4, block.stream);
      ASSERT_EQ(last, block.mark);
      ASSERT_EQ(allocator.free(block.address), Status::ok);
    };
    for (std::uint32_t step = 1; step <= steps; ++step) {
      if (live.size() < 30 && random() % 5 != 0) {
        Live block{};
        block.bytes = 4 + random() % (random() % 4 == 0 ? 40 * MiB : 3 * MiB);
        block.mark = step * 2654435761U;
        block.stream = streams[random() % 3];
        if (allocator.alloc(block.bytes, block.stream, block.address) != Status::ok) {
          ++refused;
          if (!live.empty()) check_and_free(random() % live.size());
          continue;
        }
        ASSERT_EQ(driver->memset_d32(0, block.address, block.mark, block.bytes / 4, block.stream),
                  DriverStatus::ok);
        live.push_back(block);
      } else if (!live.empty()) {
        check_and_free(random() % live.size());
      }
      if (HasFatalFailure()) return;
      if (step % 500 == 0) {
        allocator.validate();
        ASSERT_EQ(allocator.trim(random() % 2 * 128 * MiB), Status::ok);
      }
    }
    while (!live.empty()) {
      check_and_free(live.size() - 1);
      if (HasFatalFailure()) return;
    }
    const HeapCounters counters = allocator.counters();
    fmt::print("edges {}: {} words checked, {} requests refused, {} windows made, {} used again\n",
               edges, checked, refused, counters.windows.made, counters.windows.hits);
    EXPECT_GT(counters.windows.made, 0U);
    for (const StreamHandle made : {streams[1], streams[2]}) driver->stream_destroy(0, made);
  }
}

}  // namespace
}  // namespace gapless
