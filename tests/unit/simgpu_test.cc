// The judge must itself be judged: every rule it knows is broken here once.
#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "simgpu/address_ranges.h"
#include "simgpu/sim_driver.h"
#include "tests/support/scratch_folder.h"

namespace gapless::simgpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kPage = 2 * MiB;

class SimGpu : public ::testing::Test {
 protected:
  SimGpu() : gpu({.devices = {{.total_bytes = 16 * MiB}}, .costs = {}, .keep_contents = true}) {}

  MemHandle create() {
    MemHandle handle = 0;
    EXPECT_EQ(gpu.mem_create(0, kPage, handle), DriverStatus::ok);
    return handle;
  }
  DeviceAddress reserve(std::uint64_t pages) {
    DeviceAddress address = 0;
    EXPECT_EQ(gpu.address_reserve(pages * kPage, 0, address), DriverStatus::ok);
    return address;
  }
  // A page, mapped and accessible.
  DeviceAddress page(MemHandle handle) {
    const DeviceAddress address = reserve(1);
    EXPECT_EQ(gpu.mem_map(address, kPage, handle), DriverStatus::ok);
    EXPECT_EQ(gpu.mem_set_access(address, kPage, 0), DriverStatus::ok);
    return address;
  }
  StreamHandle stream() {
    StreamHandle made = 0;
    EXPECT_EQ(gpu.stream_create(0, made), DriverStatus::ok);
    return made;
  }
  void write(StreamHandle on, DeviceAddress address, std::uint64_t ns = 1000,
             std::uint64_t bytes = kPage) {
    const Access access{address, bytes, true};
    gpu.launch(0, on, ns, {&access, 1});
  }
  void read(StreamHandle on, DeviceAddress address) {
    const Access access{address, kPage, false};
    gpu.launch(0, on, 1000, {&access, 1});
  }

  SimDriver gpu;
};

TEST_F(SimGpu, CapacityIsExact) {
  std::vector<MemHandle> handles;
  for (int i = 0; i < 8; ++i) handles.push_back(create());
  MemHandle extra = 0;
  EXPECT_EQ(gpu.mem_create(0, kPage, extra), DriverStatus::out_of_memory);
  MemInfo info;
  gpu.mem_info(0, info);
  EXPECT_EQ(info.free_bytes, 0U);
  EXPECT_EQ(info.total_bytes, 16 * MiB);
  gpu.mem_release(handles[3]);
  EXPECT_EQ(gpu.mem_create(0, kPage, extra), DriverStatus::ok);
  EXPECT_THAT(gpu.violations(), IsEmpty());  // running out is no misuse
}

TEST_F(SimGpu, MemoryStaysWhileItIsMapped) {
  const MemHandle handle = create();
  const DeviceAddress address = page(handle);
  gpu.mem_release(handle);
  EXPECT_EQ(gpu.used_bytes(0), kPage);
  write(0, address);
  gpu.device_synchronize(0);
  gpu.mem_unmap(address, kPage);
  EXPECT_EQ(gpu.used_bytes(0), 0U);
  EXPECT_THAT(gpu.violations(), IsEmpty());
}

TEST_F(SimGpu, AliasesAreOnePlace) {
  const MemHandle handle = create();
  const DeviceAddress first = page(handle);
  const DeviceAddress second = page(handle);
  gpu.memset_d32(0, first, 0xABCD1234, kPage / 4, 0);
  std::uint32_t word = 0;
  gpu.copy_to_host(0, &word, second + 4096, 4, 0);
  EXPECT_EQ(word, 0xABCD1234U);
  const std::uint32_t other = 7;
  gpu.copy_to_device(0, second + 100, &other, 4, 0);
  gpu.copy_to_host(0, &word, first + 100, 4, 0);
  EXPECT_EQ(word, 7U);
  EXPECT_THAT(gpu.violations(), IsEmpty());
}

TEST_F(SimGpu, ContentsCrossPagesAndAreZeroWhereNothingWasWritten) {
  const DeviceAddress address = reserve(2);
  gpu.mem_map(address, kPage, create());
  gpu.mem_map(address + kPage, kPage, create());
  gpu.mem_set_access(address, 2 * kPage, 0);
  const std::vector<unsigned char> sent(1000, 42);
  gpu.copy_to_device(0, address + kPage - 500, sent.data(), sent.size(), 0);
  std::vector<unsigned char> got(1002, 1);
  gpu.copy_to_host(0, got.data(), address + kPage - 501, got.size(), 0);
  EXPECT_EQ(got.front(), 0);
  EXPECT_EQ(got.back(), 0);
  EXPECT_EQ(std::count(got.begin(), got.end(), 42), 1000);
}

TEST_F(SimGpu, PlainAllocationsAreChargedInPages) {
  DeviceAddress a = 0;
  DeviceAddress b = 0;
  EXPECT_EQ(gpu.mem_alloc(0, 1, a), DriverStatus::ok);
  EXPECT_EQ(gpu.mem_alloc(0, 3 * MiB, b), DriverStatus::ok);
  EXPECT_EQ(gpu.used_bytes(0), 6 * MiB);
  EXPECT_GT(b, a);  // ascending
  EXPECT_EQ(gpu.mem_free(0, a), DriverStatus::ok);
  DeviceAddress c = 0;
  EXPECT_EQ(gpu.mem_alloc(0, 100, c), DriverStatus::ok);
  EXPECT_EQ(c, a);  // first fit
  EXPECT_EQ(gpu.mem_free(0, c + 512), DriverStatus::invalid_value);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("mem_free")));
}

// --- what a real driver reports ------------------------------------------------------------------

TEST_F(SimGpu, ReportsDoubleMap) {
  const DeviceAddress address = page(create());
  EXPECT_EQ(gpu.mem_map(address, kPage, create()), DriverStatus::invalid_value);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("double map")));
}

TEST_F(SimGpu, ReportsPartialUnmapAndAllowsSeveralWholeMappingsAtOnce) {
  const DeviceAddress address = reserve(2);
  MemHandle large = 0;
  gpu.mem_create(0, 2 * kPage, large);
  gpu.mem_map(address, 2 * kPage, large);
  EXPECT_EQ(gpu.mem_unmap(address, kPage), DriverStatus::invalid_value);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("partial unmap")));
  EXPECT_EQ(gpu.mem_unmap(address, 2 * kPage), DriverStatus::ok);
  gpu.mem_map(address, kPage, create());
  gpu.mem_map(address + kPage, kPage, create());
  EXPECT_EQ(gpu.mem_unmap(address, 2 * kPage), DriverStatus::ok);
  EXPECT_EQ(gpu.violations().size(), 1U);
}

TEST_F(SimGpu, ReportsUseOfWhatIsNotThere) {
  EXPECT_EQ(gpu.mem_release(77), DriverStatus::invalid_value);
  EXPECT_EQ(gpu.mem_map(0x1000, kPage, create()), DriverStatus::invalid_value);
  EXPECT_EQ(gpu.mem_unmap(0x1000, kPage), DriverStatus::invalid_value);
  EXPECT_EQ(gpu.mem_set_access(reserve(1), kPage, 0), DriverStatus::invalid_value);
  EXPECT_EQ(gpu.event_record(0, 5, 0), DriverStatus::invalid_handle);
  EXPECT_EQ(gpu.stream_synchronize(0, 0x1230), DriverStatus::invalid_handle);
  EXPECT_EQ(gpu.address_free(0x5000, kPage), DriverStatus::invalid_value);
  MemHandle handle = 0;
  EXPECT_EQ(gpu.mem_create(0, kPage + 1, handle), DriverStatus::invalid_value);
  EXPECT_EQ(gpu.violations().size(), 8U);
  EXPECT_EQ(gpu.mem_create(3, kPage, handle), DriverStatus::invalid_device);
}

TEST_F(SimGpu, ReportsReservationFreedUnderMappings) {
  const DeviceAddress address = page(create());
  EXPECT_EQ(gpu.address_free(address, kPage), DriverStatus::invalid_value);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("still mapped")));
}

// --- what a real driver leaves undefined
// -----------------------------------------------------------

TEST_F(SimGpu, CatchesAccessToUnmappedMemory) {
  write(0, reserve(1));
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("access to unmapped memory")));
}

TEST_F(SimGpu, CatchesAccessPastTheEndOfAMapping) {
  const DeviceAddress address = page(create());
  write(0, address, 1000, kPage + 1);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("access to unmapped memory")));
}

TEST_F(SimGpu, CatchesAccessWithoutPermission) {
  const DeviceAddress address = reserve(1);
  gpu.mem_map(address, kPage, create());
  write(0, address);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("given no access")));
}

TEST_F(SimGpu, CatchesUnmapUnderRunningWork) {
  const DeviceAddress address = page(create());
  write(0, address);
  gpu.mem_unmap(address, kPage);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("unmap under running work")));
}

TEST_F(SimGpu, CatchesUnmapEvenWhereTimingWasKind) {
  const DeviceAddress address = page(create());
  write(0, address, 10);
  gpu.advance(1000000);  // it surely ran, but nobody asked
  gpu.mem_unmap(address, kPage);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("unmap under running work")));
}

TEST_F(SimGpu, CatchesUseBeforeEvent) {
  const DeviceAddress address = page(create());
  write(0, address);
  write(stream(), address);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("use before event")));
}

TEST_F(SimGpu, CatchesUseBeforeEventThroughAnotherAlias) {
  const MemHandle handle = create();
  const DeviceAddress first = page(handle);
  const DeviceAddress second = page(handle);
  write(0, first);
  write(stream(), second);
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("use before event")));
}

TEST_F(SimGpu, AllowsDisjointBytesOfOnePage) {
  const MemHandle handle = create();
  const DeviceAddress first = page(handle);
  const DeviceAddress second = page(handle);
  write(0, first, 1000, kPage / 2);
  const Access upper{second + kPage / 2, kPage / 2, true};
  gpu.launch(0, stream(), 1000, {&upper, 1});
  EXPECT_THAT(gpu.violations(), IsEmpty());
}

TEST_F(SimGpu, AllowsReadersSideBySideButNoWriterAmongThem) {
  const DeviceAddress address = page(create());
  const StreamHandle one = stream();
  const StreamHandle two = stream();
  read(one, address);
  read(two, address);
  EXPECT_THAT(gpu.violations(), IsEmpty());
  write(two, address);
  EXPECT_EQ(gpu.violations().size(), 1U);
}

TEST_F(SimGpu, WaitingForAnEventOrdersWork) {
  const DeviceAddress address = page(create());
  const StreamHandle one = stream();
  const StreamHandle two = stream();
  EventHandle event = 0;
  gpu.event_create(0, event);
  write(one, address, 5000);
  gpu.event_record(0, event, one);
  gpu.stream_wait_event(0, two, event);
  write(two, address);
  EXPECT_THAT(gpu.violations(), IsEmpty());
  write(one, address);  // the other direction was never ordered
  EXPECT_EQ(gpu.violations().size(), 1U);
}

TEST_F(SimGpu, OrderIsTransitive) {
  const DeviceAddress address = page(create());
  const StreamHandle streams[] = {stream(), stream(), stream()};
  EventHandle events[2] = {};
  for (EventHandle& event : events) gpu.event_create(0, event);
  write(streams[0], address);
  gpu.event_record(0, events[0], streams[0]);
  gpu.stream_wait_event(0, streams[1], events[0]);
  gpu.event_record(0, events[1], streams[1]);
  gpu.stream_wait_event(0, streams[2], events[1]);
  write(streams[2], address);
  EXPECT_THAT(gpu.violations(), IsEmpty());
}

TEST_F(SimGpu, EventsCompleteWhenTheClockGetsThere) {
  EventHandle event = 0;
  gpu.event_create(0, event);
  EXPECT_EQ(gpu.event_query(0, event), DriverStatus::ok);  // never recorded
  gpu.launch(0, 0, 10000, {});
  gpu.launch(0, 0, 10000, {});
  gpu.event_record(0, event, 0);
  gpu.launch(0, 0, 10000, {});  // after the event: does not count
  gpu.advance(19999);
  EXPECT_EQ(gpu.event_query(0, event), DriverStatus::not_ready);
  gpu.advance(1);
  EXPECT_EQ(gpu.event_query(0, event), DriverStatus::ok);
  EXPECT_EQ(gpu.now_ns(), 20000U);
  gpu.device_synchronize(0);
  EXPECT_EQ(gpu.now_ns(), 30000U);
}

TEST_F(SimGpu, TellsWhatIsLeft) {
  EXPECT_EQ(gpu.leaks(), "");
  page(create());
  EXPECT_EQ(gpu.leaks(), "1 handles, 1 mappings, 1 reservations");
}

TEST(SimGpuDevices, AreApart) {
  SimDriver gpu({.devices = {{.total_bytes = 4 * MiB}, {.total_bytes = 8 * MiB}}});
  MemHandle handle = 0;
  EXPECT_EQ(gpu.mem_create(1, 8 * MiB, handle), DriverStatus::ok);
  EXPECT_EQ(gpu.used_bytes(0), 0U);
  DeviceAddress address = 0;
  gpu.address_reserve(8 * MiB, 0, address);
  gpu.mem_map(address, 8 * MiB, handle);
  gpu.mem_set_access(address, 8 * MiB, 1);
  const Access access{address, 512, true};
  gpu.launch(0, 0, 1, {&access, 1});
  EXPECT_THAT(gpu.violations(), ElementsAre(HasSubstr("device 0 was given no access")));
}

TEST(SimGpuDevices, WithoutVmmSaySo) {
  SimDriver gpu({.devices = {{.has_vmm = false}}});
  DeviceProperties properties;
  gpu.device_properties(0, properties);
  EXPECT_FALSE(properties.has_vmm);
  MemHandle handle = 0;
  EXPECT_EQ(gpu.mem_create(0, 2 * MiB, handle), DriverStatus::not_supported);
}

// --- addresses -----------------------------------------------------------------------------------

TEST(AddressRanges, AreFirstFitAsIfAllWereLookedAt) {
  std::mt19937 random(7);
  AddressRanges ranges(1000);
  std::map<std::uint64_t, std::uint64_t> used;
  for (int i = 0; i < 5000; ++i) {
    if (used.empty() || random() % 5 < 3) {
      const std::uint64_t bytes = 1 + random() % 50;
      const std::uint64_t room = bytes + random() % 10;
      const std::uint64_t alignment = std::uint64_t{1} << random() % 6;
      std::uint64_t expected = align_up(1000, alignment);
      for (const auto& [begin, size] : used) {
        if (begin >= expected + room) break;
        expected = std::max(expected, align_up(begin + size, alignment));
      }
      ASSERT_EQ(ranges.take(bytes, room, alignment), expected) << i;
      used[expected] = bytes;
    } else {
      const auto gone =
          std::next(used.begin(), static_cast<std::ptrdiff_t>(random() % used.size()));
      ranges.give_back(gone->first);
      used.erase(gone);
    }
    ASSERT_EQ(ranges.used(), used);
  }
  EXPECT_EQ(ranges.take(1, UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(ranges.take(1, 1, std::uint64_t{1} << 63), std::nullopt);
}

TEST(AddressRanges, WhatCannotBeHadIsOutOfMemory) {
  SimDriver gpu({.devices = {{.total_bytes = 16 * GiB}}});
  DeviceAddress address = 0;
  for (const std::uint64_t bytes : {UINT64_MAX, UINT64_MAX - 2 * MiB + 1, std::uint64_t{1} << 63}) {
    EXPECT_EQ(gpu.mem_alloc(0, bytes, address), DriverStatus::out_of_memory);
    const std::uint64_t whole = bytes / (2 * MiB) * (2 * MiB);
    EXPECT_EQ(gpu.address_reserve(whole, 0, address), DriverStatus::out_of_memory);
  }
  EXPECT_EQ(gpu.leaks(), "");
}

// --- costs ---------------------------------------------------------------------------------------

TEST(CostProfile, BuiltInOnesDiffer) {
  EXPECT_EQ(load_cost_profile("a100").cost_ns(DriverCall::mem_create, kPage), 193000U);
  EXPECT_EQ(load_cost_profile("desktop").cost_ns(DriverCall::mem_create, kPage), 7600U);
  EXPECT_EQ(load_cost_profile("free").cost_ns(DriverCall::mem_create, kPage), 0U);
}

class CostProfileFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = folder.file("profile.json");
    std::ofstream(path) << text;
    return path;
  }
  std::string error_of(const std::string& text) {
    try {
      load_cost_profile(write(text));
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }
  ScratchFolder folder;
};

TEST_F(CostProfileFile, IsRead) {
  const CostProfile profile = load_cost_profile(write(
      R"({"name": "mine", "calls": {"mem_set_access": {"fixed_ns": 100, "per_page_ns": 5}}})"));
  EXPECT_EQ(profile.name, "mine");
  EXPECT_EQ(profile.cost_ns(DriverCall::mem_set_access, 10 * kPage), 150U);
}

TEST_F(CostProfileFile, ErrorsNameFilePlaceAndCause) {
  EXPECT_THAT(error_of("{"), HasSubstr("profile.json"));
  EXPECT_THAT(error_of("{}"), HasSubstr("\"calls\""));
  EXPECT_THAT(error_of(R"({"calls": {"mem_crate": {}}})"), HasSubstr("mem_crate"));
  EXPECT_THAT(error_of(R"({"calls": {"mem_map": {"fixed_ns": -1}}})"),
              HasSubstr("calls.mem_map.fixed_ns"));
  EXPECT_THAT(error_of(R"({"calls": {"mem_map": {"fixed": 1}}})"), HasSubstr("unknown field"));
  EXPECT_THAT(error_of(R"({"calls": {"mem_map": {"fixed_ns": 1e300}}})"),
              HasSubstr("calls.mem_map.fixed_ns"));
  EXPECT_THAT(error_of(R"({"calls": {"mem_map": 3}})"), HasSubstr("calls.mem_map: not an object"));
  EXPECT_THAT(error_of(R"({"name": 3, "calls": {}})"), HasSubstr("name: expected a text"));
  EXPECT_THAT(error_of("{\"name\": " + std::string(100000, '[')), HasSubstr("nested more than 64"));
  EXPECT_THROW(load_cost_profile("no-such-card"), std::runtime_error);
  EXPECT_THROW(load_cost_profile(folder.path()), std::runtime_error);
}

}  // namespace
}  // namespace gapless::simgpu
