// What `inspect --address` says: of dumps with checks and without, and of recordings.
#include "allocator/report/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/device/device_allocator.h"
#include "allocator/device/options.h"
#include "allocator/report/dump.h"
#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class AddressTest : public ::testing::Test {
 protected:
  void start(const std::string& conf) {
    DeviceProperties properties;
    gpu_.device_properties(0, properties);
    allocator_ = std::make_unique<DeviceAllocator>(gpu_, 0, properties, read_options(conf));
    allocator_->set_call_site_source([] { return std::string("train.py:7 (step)"); });
  }
  DeviceAddress alloc(std::uint64_t bytes) {
    DeviceAddress address = 0;
    EXPECT_EQ(allocator_->alloc(bytes, 0, address), Status::ok);
    return address;
  }
  MemoryState dumped() { return read_dump(write_dump({allocator_->report()}), "dump"); }

  simgpu::SimDriver gpu_{{.devices = {{.total_bytes = GiB}}, .keep_contents = true}};
  std::unique_ptr<DeviceAllocator> allocator_;
};

TEST_F(AddressTest, IsInALiveBlockOrBehindIt) {
  start("");
  const DeviceAddress block = alloc(1000);
  const DeviceAddress other = alloc(4 * MiB);
  const MemoryState state = dumped();
  AddressReport report = report_address(state, block + 12);
  ASSERT_TRUE(report.block);
  EXPECT_EQ(report.block->offset, 12);
  EXPECT_EQ(report.block->behind_bytes(), 0U);
  EXPECT_EQ(report.device, 0);
  EXPECT_THAT(to_text(report), HasSubstr("is at byte 12 of a block of 1000 bytes at 0x"));
  report = report_address(state, block + 1000);
  EXPECT_EQ(report.block->behind_bytes(), 1U);
  EXPECT_THAT(to_text(report), HasSubstr("is 1 bytes behind the end of a block of 1000 bytes"));
  report = report_address(state, other + 4 * MiB - 1);
  EXPECT_EQ(report.block->offset, static_cast<std::int64_t>(4 * MiB - 1));
  EXPECT_THAT(to_text(report), HasSubstr("4.00 MiB (4194304 bytes)"));
}

TEST_F(AddressTest, IsInFreeMemoryBetweenTwoBlocks) {
  start("");
  const DeviceAddress before = alloc(4096);
  const DeviceAddress block = alloc(8192);
  const DeviceAddress after = alloc(2048);
  ASSERT_EQ(allocator_->free(block), Status::ok);
  const AddressReport report = report_address(dumped(), block + 100);
  ASSERT_TRUE(report.block && report.before && report.after);
  EXPECT_EQ(report.block->block.kind, StateBlock::Kind::free);
  EXPECT_EQ(report.before->block.address, before);
  EXPECT_EQ(report.after->block.address, after);
  EXPECT_THAT(to_text(report),
              AllOf(HasSubstr("is in free memory"), HasSubstr("101 bytes behind the end of"),
                    HasSubstr("7.90 KiB (8092 bytes) before the begin of")));
}

TEST_F(AddressTest, IsNowhere) {
  start("");
  (void)alloc(512);
  const AddressReport report = report_address(dumped(), 0x1234);
  EXPECT_EQ(report.device, -1);
  EXPECT_THAT(to_text(report), HasSubstr("is not in or near any memory of the recording"));
  EXPECT_EQ(report_address(MemoryState{}, UINT64_MAX).device, -1);
}

TEST_F(AddressTest, ChecksKnowWhatWasThereAndWhereItCameFrom) {
  start("check:poison+redzones");
  const DeviceAddress keeps = alloc(64);
  const DeviceAddress block = alloc(3000);
  ASSERT_EQ(allocator_->free(block), Status::ok);
  const MemoryState state = dumped();
  const AddressReport freed = report_address(state, block + 5);
  ASSERT_THAT(freed.freed, SizeIs(1));
  EXPECT_EQ(freed.freed[0].offset, 5);
  EXPECT_THAT(to_text(freed),
              AllOf(HasSubstr("It was at byte 5 of a block of 2.93 KiB (3000 bytes)"),
                    HasSubstr("allocated at train.py:7 (step), which was freed")));
  const AddressReport band = report_address(state, keeps - 8);
  EXPECT_EQ(band.block->offset, -8);
  EXPECT_THAT(to_text(band), AllOf(HasSubstr("8 bytes before the begin of a block of 64 bytes"),
                                   HasSubstr("allocated at train.py:7 (step)")));
}

TEST_F(AddressTest, FencesAreKnownWhenTheyAreGone) {
  start("check:fence");
  const DeviceAddress live = alloc(1000);
  const DeviceAddress block = alloc(5000);
  ASSERT_EQ(allocator_->free(block), Status::ok);
  const MemoryState state = dumped();
  EXPECT_EQ(report_address(state, live).segment, "fenced");
  const AddressReport gone = report_address(state, block + 5000 + 700);  // in the page behind it
  EXPECT_FALSE(gone.block);
  ASSERT_THAT(gone.freed, SizeIs(1));
  EXPECT_EQ(gone.freed[0].behind_bytes(), 701U);
  EXPECT_THAT(to_text(gone), AllOf(HasSubstr("nothing of it is mapped there"),
                                   HasSubstr("701 bytes behind the end of a block of 4.88 KiB")));
  EXPECT_THAT(report_address(state, block + 3 * MiB).freed, IsEmpty());
}

TEST_F(AddressTest, RecordingsTellWhatWasFreed) {
  Snapshot snapshot;
  Trace trace;
  trace.device = 1;
  trace.sites = {"", "train.py:3 forward"};
  const auto event = [&](EventKind kind, std::uint32_t block, std::uint64_t address,
                         std::uint64_t bytes, std::uint64_t time_us) {
    TraceEvent made;
    made.kind = kind;
    made.block = block;
    made.address = address;
    made.bytes = bytes;
    made.time_us = time_us;
    made.site = 1;
    trace.events.push_back(made);
  };
  event(EventKind::alloc, 0, 0x10000, 4096, 1000000);
  event(EventKind::free, 0, 0x10000, 4096, 2000000);
  event(EventKind::alloc, 1, 0x10000, 512, 3000000);
  event(EventKind::free, 1, 0x10000, 512, 4000000);
  event(EventKind::alloc, 2, 0x20000, 512, 5000000);
  snapshot.traces.push_back(trace);
  const MemoryState state = state_of(snapshot, 0x10004);
  const AddressReport report = report_address(state, 0x10004);
  ASSERT_THAT(report.freed, SizeIs(2));
  EXPECT_EQ(report.freed[0].block.requested_bytes, 512U) << "the one freed last is the first";
  EXPECT_EQ(report.freed[1].block.requested_bytes, 4096U);
  EXPECT_EQ(report.freed[0].block.freed_s, 1.0);
  EXPECT_EQ(report.device, 1);
  EXPECT_THAT(to_text(report),
              HasSubstr("allocated at train.py:3 forward, which was freed 1 s before"));
}

TEST_F(AddressTest, WhatADumpSaysOfChecksIsChecked) {
  start("check:poison+redzones,fence:1/2");
  const DeviceAddress block = alloc(3000);
  (void)alloc(2000);
  ASSERT_EQ(allocator_->free(block), Status::ok);
  const std::string text = write_dump({allocator_->report()});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) changed.replace(at, from.size(), to);
    return changed;
  };
  EXPECT_THROW((void)read_dump(with("\"freed_s\": ", "\"freed_s\": -"), "bad"), InputError);
  EXPECT_THROW((void)read_dump(with("\"fenced\": ", "\"fenced\": 7, \"x\": "), "bad"), InputError);
  EXPECT_THROW((void)read_dump(with("\"call_site\": \"train", "\"call_site\": [\"train"), "bad"),
               InputError);
  EXPECT_THROW((void)read_dump(with("\"given\": ", "\"given\": 99999999"), "bad"), InputError);
}

}  // namespace
}  // namespace gapless
