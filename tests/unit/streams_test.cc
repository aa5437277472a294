// Several streams: whose memory is whose, in what order it was freed, and who comes after whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/stream/stream_ledger.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// --- sets ----------------------------------------------------------------------------------------

TEST(StreamSets, HaveOneNameWhateverTheOrder) {
  StreamSets sets(0);
  const Owner a = sets.of_stream(10);
  const Owner b = sets.of_stream(20);
  EXPECT_NE(a, b);
  EXPECT_EQ(sets.of_stream(10), a);
  EXPECT_EQ(sets.with(a, {0, 10}), a);  // no new user
  const Owner both = sets.with(a, {0, 20});
  EXPECT_EQ(sets.with(a, {0, 20}), both);
  EXPECT_EQ(sets.with(both, {0, 10}), both);
  EXPECT_NE(sets.with(b, {0, 10}), both);  // allocated on the other one
  EXPECT_EQ(sets.with(sets.with(a, {0, 30}), {0, 20}), sets.with(both, {0, 30}));
  EXPECT_THAT(sets.members(both), ElementsAre(0, 1));
  EXPECT_TRUE(sets.is_one_stream(b));
  EXPECT_FALSE(sets.is_one_stream(both));
  EXPECT_EQ(sets.owner_of(1), b);
}

TEST(StreamSets, EveryDeviceHasAStreamZero) {
  StreamSets sets(1);
  const Owner own = sets.of_stream(0);
  EXPECT_EQ(sets.with(own, {1, 0}), own);
  const Owner both = sets.with(own, {0, 0});
  EXPECT_NE(both, own);
  EXPECT_EQ(sets.stream(sets.members(both).back()), (DeviceStream{0, 0}));
  EXPECT_EQ(sets.of_stream(0), own);
}

TEST(StreamSets, TooManyBecomeTheSetOfAll) {
  StreamSets sets(0);
  const Owner first = sets.of_stream(1);
  for (StreamHandle stream = 2; stream <= 14; ++stream) sets.of_stream(stream);
  Owner last = first;
  for (unsigned bits = 0; bits < 1U << 13; ++bits) {  // every set of the other thirteen
    last = first;
    for (unsigned i = 0; i < 13; ++i) {
      if ((bits >> i & 1) != 0) last = sets.with(last, {0, 2 + i});
    }
  }
  EXPECT_EQ(sets.members(last).size(), 14U);
  EXPECT_LT(sets.owners(), 3000U);
}

// --- the ledger ----------------------------------------------------------------------------------

class Ledger : public ::testing::Test {
 protected:
  Ledger() {
    for (StreamHandle& handle : handles) gpu.stream_create(0, handle);
    ledger = std::make_unique<StreamLedger>(gpu, 0);
    for (int i = 0; i < 3; ++i) owners[i] = ledger->number_of(handles[i]);
  }
  ~Ledger() override {
    ledger.reset();
    EXPECT_EQ(gpu.leaks(), "");  // events are given back
    EXPECT_THAT(gpu.violations(), IsEmpty());
  }
  void work(int stream, std::uint64_t ns) { gpu.launch(0, handles[stream], ns, {}); }

  simgpu::SimDriver gpu;
  StreamHandle handles[3] = {};
  Owner owners[3] = {};
  std::unique_ptr<StreamLedger> ledger;
};

TEST_F(Ledger, EpochsCompleteInOrder) {
  EXPECT_EQ(ledger->handle_of(owners[1]), handles[1]);
  const Epoch first = ledger->note_free(owners[0]);
  work(0, 1000);
  EXPECT_EQ(ledger->close_epoch(0), DriverStatus::ok);
  const Epoch second = ledger->note_free(owners[0]);
  EXPECT_GT(second, first);
  work(0, 1000);
  EXPECT_EQ(ledger->close_epoch(0), DriverStatus::ok);
  EXPECT_EQ(ledger->close_epoch(0), DriverStatus::ok);  // nothing freed: no event
  EXPECT_TRUE(ledger->pending());
  gpu.advance(1000);
  EXPECT_EQ(ledger->poll(), DriverStatus::ok);
  EXPECT_EQ(ledger->completed(0), first);
  gpu.advance(1000);
  EXPECT_EQ(ledger->poll(), DriverStatus::ok);
  EXPECT_EQ(ledger->completed(0), second);
  EXPECT_FALSE(ledger->pending());
  const Epoch third = ledger->note_free(owners[1]);
  EXPECT_EQ(ledger->finish(), DriverStatus::ok);
  EXPECT_GE(ledger->completed(1), third);
}

TEST_F(Ledger, WaitsOnceAndOnlyWhereItMust) {
  work(0, 1000);
  const Epoch freed = ledger->note_free(owners[0]);
  EXPECT_TRUE(ledger->is_after(owners[0], owners[0], freed));  // itself
  EXPECT_FALSE(ledger->is_after(owners[1], owners[0], freed));
  EXPECT_TRUE(ledger->is_after(owners[1], owners[2], freed));  // that one freed nothing
  EXPECT_EQ(ledger->order_after(owners[1], owners[0], freed), DriverStatus::ok);
  EXPECT_EQ(ledger->waits(), 1U);
  EXPECT_TRUE(ledger->is_after(owners[1], owners[0], freed));
  EXPECT_EQ(ledger->order_after(owners[1], kAnyone, freed), DriverStatus::ok);
  EXPECT_EQ(ledger->waits(), 1U);  // as before
  EXPECT_FALSE(ledger->is_after(owners[2], owners[0], freed));
  gpu.advance(2000);
  ledger->begin_request();
  EXPECT_EQ(ledger->order_after(owners[2], owners[0], freed), DriverStatus::ok);
  EXPECT_EQ(ledger->waits(), 1U);  // it was done
}

TEST_F(Ledger, OneWaitCoversWhatTheOtherHadWaitedFor) {
  work(0, 100000);
  const Epoch freed = ledger->note_free(owners[0]);
  EXPECT_EQ(ledger->order_after(owners[1], owners[0], freed), DriverStatus::ok);
  const Epoch later = ledger->note_free(owners[1]);
  EXPECT_EQ(ledger->order_after(owners[2], owners[1], later), DriverStatus::ok);
  EXPECT_TRUE(ledger->is_after(owners[2], owners[0], freed));
  EXPECT_EQ(ledger->waits(), 2U);
}

TEST_F(Ledger, AnEventDoesNotCoverWhatCameAfterIt) {
  work(0, 1000);
  const Epoch freed = ledger->note_free(owners[0]);
  EXPECT_EQ(ledger->order_after(owners[1], owners[0], freed), DriverStatus::ok);
  const Epoch again = ledger->note_free(owners[0]);
  EXPECT_GT(again, freed);
  EXPECT_FALSE(ledger->is_after(owners[1], owners[0], again));
}

TEST_F(Ledger, RecordsEventsOnlyWhereSomebodyWantsThem) {
  CountingDriver counting(gpu);
  StreamLedger quiet(counting, 0);
  const Owner one = quiet.number_of(handles[0]);
  const Owner two = quiet.number_of(handles[1]);
  for (int i = 0; i < 10; ++i) {
    quiet.note_free(one);
    EXPECT_EQ(quiet.end_epoch(0), DriverStatus::ok);
  }
  EXPECT_EQ(counting.counts().total(), 0U);
  EXPECT_EQ(quiet.order_after(two, one, quiet.note_free(one)), DriverStatus::ok);
  const std::uint64_t recorded = counting.counts().of(DriverCall::event_record);
  quiet.note_free(one);
  EXPECT_EQ(quiet.end_epoch(0), DriverStatus::ok);
  EXPECT_EQ(counting.counts().of(DriverCall::event_record), recorded + 1);
}

// --- the allocator -------------------------------------------------------------------------------

class SeveralStreams : public testing::OnDevice {};

// PyTorch's allocator would still count a block as active while another stream's work uses it.
TEST_F(SeveralStreams, ActiveBytesAreWhatPyTorchsAllocatorWouldSay) {
  start();
  const DeviceAddress a = alloc(4 * MiB, 0);
  EXPECT_EQ(allocator->record_stream(a, 0), Status::ok);  // its own stream is no other use
  free(a);
  EXPECT_EQ(allocator->statistics().active_bytes.all.current, 0);
  const DeviceAddress b = alloc(4 * MiB, 0);
  EXPECT_EQ(allocator->record_stream(b, side), Status::ok);
  EXPECT_EQ(allocator->record_stream(b, third), Status::ok);
  gpu->order(0, 0, side);
  write(b, 4 * MiB, side, 5000000);
  free(b);
  const auto active = [&] { return allocator->statistics().active_bytes; };
  EXPECT_EQ(allocator->statistics().allocated_bytes.all.current, 0);
  EXPECT_EQ(active().all.current, 4 * MiB);
  EXPECT_EQ(active().large_pool.current, 4 * MiB);
  EXPECT_EQ(allocator->statistics().active.all.current, 1);
  const DeviceAddress c = alloc(MiB, 0);  // not done yet
  EXPECT_EQ(active().all.current, 5 * MiB);
  EXPECT_EQ(active().all.peak, 5 * MiB);
  EXPECT_EQ(allocator->statistics().allocated_bytes.all.peak, 4 * MiB);
  gpu->stream_synchronize(0, side);
  EXPECT_EQ(active().all.current, 5 * MiB);  // seen with the next request, as there
  const DeviceAddress d = alloc(512, 0);
  EXPECT_EQ(active().all.current, MiB + 512);
  allocator->reset_peak_statistics();
  EXPECT_EQ(active().all.peak, MiB + 512);
  EXPECT_EQ(active().all.freed, active().all.allocated - active().all.current);
  free(c);
  free(d);
}

// PyTorch asks its streams while a pool is begun without a capture, where it can tell (2.13).
TEST_F(SeveralStreams, AreAskedInAPoolWhereCapturesAreTold) {
  start();
  const auto active = [&] { return allocator->statistics().active_bytes.all.current; };
  const auto use_and_free = [&] {
    const DeviceAddress a = alloc(4 * MiB, 0);
    EXPECT_EQ(allocator->record_stream(a, side), Status::ok);
    gpu->order(0, 0, side);
    write(a, 4 * MiB, side);
    free(a);
    EXPECT_EQ(active(), 4 * MiB);
    gpu->stream_synchronize(0, side);
  };
  use_and_free();
  begin({0, 1});
  free(alloc(512, 0));
  EXPECT_EQ(active(), 4 * MiB);  // there may be a capture
  allocator->expect_capture_marks();
  free(alloc(512, 0));
  EXPECT_EQ(active(), 0);
  end({0, 1});
  use_and_free();
  begin({0, 1});
  allocator->note_capture(true);
  free(alloc(512, 0));
  EXPECT_EQ(active(), 4 * MiB);
  allocator->note_capture(false);
  free(alloc(512, 0));
  EXPECT_EQ(active(), 0);
  end({0, 1});
  release({0, 1});  // begun twice
  release({0, 1});
}

// A pool begun for streams that nobody has seen may be for a capture, unless captures are told.
TEST_F(SeveralStreams, ThatNobodyHasSeenMayCapture) {
  start();
  free(alloc(4 * MiB, 0));
  ASSERT_EQ(allocator->begin_pool({0, 1}, [&](StreamHandle stream) { return stream == side; }),
            Status::ok);
  EXPECT_EQ(allocator->trim(), Status::driver_error);
  allocator->expect_capture_marks();
  allocator->note_capture(true);
  EXPECT_EQ(allocator->trim(), Status::driver_error);
  EXPECT_EQ(reserved(), 4 * MiB);
  allocator->note_capture(false);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 0U);
  end({0, 1});
  release({0, 1});
}

// A copy to another device that the other device's stream makes: the memory is that stream's too.
TEST_F(SeveralStreams, MayBeAnotherDevices) {
  start({.devices = 2});
  ASSERT_EQ(allocator->add_peer(1), Status::ok);
  StreamHandle other = 0;
  gpu->stream_create(1, other);
  for (const StreamHandle stream : {other, StreamHandle{0}}) {
    const DeviceAddress a = alloc(4 * MiB, side);
    gpu->order(0, side, 0);
    gpu->stream_synchronize(0, side);
    const simgpu::Access read{a, 4 * MiB, false};
    gpu->launch(1, stream, 5000000, {&read, 1});
    EXPECT_EQ(allocator->record_stream(a, DeviceStream{1, stream}), Status::ok);
    free(a);
    EXPECT_EQ(allocator->statistics().active_bytes.all.current, 4 * MiB);
    const std::uint64_t waits = calls(DriverCall::stream_wait_event);
    const DeviceAddress b = alloc(4 * MiB, side);  // and writes it: the judge looks
    EXPECT_EQ(b, a);
    EXPECT_EQ(reserved(), 4 * MiB);
    EXPECT_EQ(calls(DriverCall::stream_wait_event), waits + 1);
    EXPECT_GT(gpu->work_end_ns(0, side), gpu->now_ns() + 5000000);
    free(b);
    EXPECT_EQ(allocator->trim(), Status::ok);
    EXPECT_EQ(reserved(), 0U);
    EXPECT_EQ(allocator->statistics().active_bytes.all.current, 0);
  }
  EXPECT_EQ(calls(DriverCall::device_synchronize), 4U);  // both devices, at each trim
}

// When a process ends, its last tensors are often freed after the driver has gone.
TEST_F(SeveralStreams, FreesAfterTheDriverIsGoneAreHarmless) {
  start();
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 40; ++i) {
    const StreamHandle streams[] = {0, side, third};
    blocks.push_back(alloc((1 + i % 7) * MiB, streams[i % 3]));
    if (blocks.size() > 12) {
      free(blocks.front());
      blocks.erase(blocks.begin());
    }
  }
  EXPECT_EQ(allocator->record_stream(blocks[0], third), Status::ok);
  begin({0, 1});
  blocks.push_back(alloc(MiB));
  end({0, 1});
  EXPECT_EQ(allocator->pin(blocks[3]), Status::ok);
  faults->fail({.kind = {}, .nth = 1, .status = DriverStatus::deinitialized, .persistent = true});
  for (const DeviceAddress address : blocks) {
    EXPECT_EQ(allocator->free(address), Status::ok);
    EXPECT_EQ(allocator->free(address), Status::invalid_argument);
  }
  EXPECT_EQ(allocator->unpin(blocks[3]), Status::ok);
  EXPECT_EQ(allocator->release_pool({0, 1}), Status::ok);
  allocator->validate();
  DeviceAddress none = 0;
  EXPECT_EQ(allocator->alloc(60 * MiB, side, none), Status::driver_error);
  EXPECT_EQ(allocator->trim(), Status::driver_error);
  EXPECT_EQ(allocator->statistics().allocated_bytes.all.current, 0);
  allocator.reset();
  EXPECT_NE(gpu->leaks(), "");  // the driver that has gone took it all with it
  gpu.reset();
}

TEST_F(SeveralStreams, OneMayHaveAnothersMemoryAndWaitsOnTheDevice) {
  start({.settings = "stream_budget:0"});
  const DeviceAddress a = alloc(4 * MiB, 0);
  free(a);
  EXPECT_EQ(alloc(4 * MiB, 0), a);  // its own at once
  free(a);
  EXPECT_EQ(calls(DriverCall::stream_wait_event), 0U);
  const DeviceAddress b = alloc(4 * MiB, side);
  EXPECT_EQ(b, a);
  EXPECT_EQ(reserved(), 4 * MiB);
  EXPECT_EQ(calls(DriverCall::stream_wait_event), 1U);
  EXPECT_EQ(counting->counts().host_syncs(), 0U);
  free(b);
}

TEST_F(SeveralStreams, WhatIsDoneNeedsNoWait) {
  start({.settings = "stream_budget:0"});
  const DeviceAddress a = alloc(4 * MiB, 0);
  free(a);
  gpu->advance(10000000);
  EXPECT_EQ(alloc(4 * MiB, side), a);
  EXPECT_EQ(calls(DriverCall::stream_wait_event), 0U);
  free(a);
}

TEST_F(SeveralStreams, BudgetComesBeforeAWait) {
  start({.settings = "stream_budget:50"});
  free(alloc(512, side));  // from now on each stream's largest request counts
  free(alloc(8 * MiB, 0));
  const std::uint64_t before = calls(DriverCall::stream_wait_event);
  const DeviceAddress a = alloc(4 * MiB, side);  // half of the peak
  EXPECT_EQ(reserved(), 12 * MiB);
  EXPECT_EQ(calls(DriverCall::stream_wait_event), before);
  const DeviceAddress b = alloc(4 * MiB, side);
  EXPECT_EQ(reserved(), 12 * MiB);
  EXPECT_EQ(calls(DriverCall::stream_wait_event), before + 1);
  free(a);
  free(b);
}

// The simulated GPU says where one does not come after the other (TearDown).
TEST_F(SeveralStreams, WhoTakesAWindowsPagesComesAfterItsBlock) {
  start({.capacity = 10 * MiB, .settings = "stream_budget:0"});
  free(alloc(512, third));
  std::vector<DeviceAddress> pages;
  for (int i = 0; i < 5; ++i) pages.push_back(alloc(2 * MiB, 0));
  for (const std::size_t i : {0U, 2U, 4U}) free(pages[i]);
  const DeviceAddress window = alloc(6 * MiB, side);  // which has used none of it before
  ASSERT_EQ(allocator->report().windows, 1U);
  free(window);
  const std::uint64_t before = allocator->counters().waits;
  EXPECT_EQ(alloc(6 * MiB, 0), window);
  EXPECT_EQ(allocator->counters().waits, before + 1);
  free(window);
  for (const std::size_t i : {1U, 3U}) free(pages[i]);
}

// So much is there that no epoch ends.
TEST_F(SeveralStreams, APageBesideAnothersIsEveryones) {
  start({.capacity = 516 * MiB, .settings = "stream_budget:0"});
  const DeviceAddress all = alloc(512 * MiB, 0);
  const DeviceAddress first = alloc(2 * MiB, side);
  const DeviceAddress second = alloc(2 * MiB, 0);
  free(first);
  free(second);
  EXPECT_EQ(alloc(4 * MiB, 0), first);
  EXPECT_EQ(allocator->counters().waits, 1U);
  free(first);
  free(all);
}

TEST_F(SeveralStreams, APartOfAPageThatTwoFreedIsEveryones) {
  start({.capacity = 2 * MiB, .settings = "stream_budget:0"});
  const DeviceAddress first = alloc(MiB / 2, 0);
  const DeviceAddress second = alloc(MiB / 2, side);
  const DeviceAddress last = alloc(MiB, 0);
  free(first);
  EXPECT_EQ(alloc(MiB / 2, 0), first);  // its own: nobody is waited for
  EXPECT_EQ(allocator->counters().waits, 0U);
  free(first);
  free(second);
  EXPECT_EQ(alloc(MiB, 0), first);
  EXPECT_EQ(allocator->counters().waits, 1U);
  free(first);
  free(last);
}

// PyTorch's test_record_stream_on_shifted_view.
TEST_F(SeveralStreams, WhatAnotherUsesStillKeepsOnlyItselfFromAPagesRest) {
  start({.settings = "stream_budget:0"});
  const DeviceAddress block = alloc(512, side);
  EXPECT_EQ(allocator->record_stream(block, third), Status::ok);
  gpu->order(0, side, third);
  write(block, 512, third);
  free(block);
  EXPECT_EQ(alloc(512, side), block + 512);
  EXPECT_EQ(allocator->counters().waits, 0U);
  free(block + 512);
}

// Beyond the page that it shares with what another stream freed there.
TEST_F(SeveralStreams, ThePageThatAHoleSharesIsLeftOut) {
  start({.settings = "stream_budget:0"});
  free(alloc(512, side));
  const DeviceAddress first = alloc(3 * MiB, side);
  const DeviceAddress rest = alloc(13 * MiB, 0);
  free(rest);
  free(alloc(MiB, side));  // a little of it, in the first one's last page
  const std::uint64_t waits = allocator->counters().waits;
  EXPECT_EQ(alloc(10 * MiB, 0), first + 4 * MiB);
  EXPECT_EQ(allocator->counters().waits, waits);
  free(first + 4 * MiB);
  free(first);
}

TEST_F(SeveralStreams, TheOldestIsTakenFirst) {
  start({.settings = "stream_budget:0"});
  const DeviceAddress old = alloc(8 * MiB, 0);
  const DeviceAddress between = alloc(512, 0);
  const DeviceAddress young = alloc(8 * MiB, 0);
  free(old);
  free(young);
  EXPECT_EQ(alloc(8 * MiB, side), old);
  free(old);
  free(between);
}

TEST_F(SeveralStreams, CompletedTakesOnlyWhatIsDone) {
  start({.settings = "cross_stream:completed"});
  const DeviceAddress a = alloc(4 * MiB, 0);
  free(a);
  const DeviceAddress b = alloc(4 * MiB, side);  // still running: new memory instead
  EXPECT_NE(b, a);
  EXPECT_EQ(reserved(), 8 * MiB);
  gpu->advance(10000000);
  EXPECT_EQ(alloc(4 * MiB, side), a);
  EXPECT_EQ(calls(DriverCall::stream_wait_event), 0U);
  free(a);
  free(b);
}

TEST_F(SeveralStreams, NeverTakesAnothersUntilMemoryRunsOut) {
  start({.capacity = 8 * MiB, .settings = "cross_stream:never"});
  const DeviceAddress a = alloc(4 * MiB, 0);
  free(a);
  gpu->advance(10000000);
  const DeviceAddress b = alloc(4 * MiB, side);
  EXPECT_NE(b, a);
  EXPECT_EQ(alloc(4 * MiB, side), a);
  free(a);
  free(b);
}

TEST_F(SeveralStreams, NeighbouringHolesOfTwoStreamsServeAThird) {
  start({.capacity = 16 * MiB, .settings = "stream_budget:0,windows:off"});
  const DeviceAddress a = alloc(8 * MiB, 0);
  const DeviceAddress b = alloc(8 * MiB, side);
  free(a);
  free(b);
  EXPECT_EQ(alloc(16 * MiB, third), std::min(a, b));  // waits for both
  EXPECT_EQ(counting->counts().host_syncs(), 0U);
  free(std::min(a, b));
}

TEST_F(SeveralStreams, RecordStreamKeepsABlockFromItsOwnStreamUntilTheUserIsDone) {
  start({.capacity = 8 * MiB, .settings = "stream_budget:0"});
  const DeviceAddress a = alloc(8 * MiB, 0);
  EventHandle ready = 0;
  gpu->event_create(0, ready);
  gpu->event_record(0, ready, 0);
  gpu->stream_wait_event(0, side, ready);
  gpu->event_destroy(0, ready);
  const simgpu::Access access{a, 8 * MiB, true};
  gpu->launch(0, side, 5000000, {&access, 1});
  EXPECT_EQ(allocator->record_stream(a, side), Status::ok);
  free(a);
  EXPECT_EQ(allocator->statistics().allocated_bytes.all.current, 0);
  EXPECT_EQ(alloc(8 * MiB, 0), a);  // TearDown sees that it came after the side stream
  EXPECT_EQ(calls(DriverCall::stream_wait_event), 1U);
  free(a);
}

TEST_F(SeveralStreams, RecordStreamOfItsOwnStreamChangesNothing) {
  start({.settings = ""});
  const DeviceAddress a = alloc(4 * MiB, 0);
  EXPECT_EQ(allocator->record_stream(a, 0), Status::ok);
  EXPECT_EQ(allocator->record_stream(0, side), Status::ok);
  EXPECT_EQ(allocator->record_stream(a + 512, side), Status::invalid_argument);
  free(a);
  EXPECT_EQ(alloc(4 * MiB, 0), a);
  EXPECT_EQ(calls(DriverCall::event_record), 0U);
  free(a);
}

TEST_F(SeveralStreams, FreesOfADestroyedStreamAreNotLost) {
  start({.capacity = 8 * MiB, .settings = "stream_budget:0"});
  const DeviceAddress a = alloc(8 * MiB, side);
  gpu->stream_synchronize(0, side);
  gpu->stream_destroy(0, side);
  free(a);
  DeviceAddress b = 0;
  EXPECT_EQ(allocator->alloc(8 * MiB, 0, b), Status::ok);
  EXPECT_EQ(b, a);
  free(b);
  // Asking a stream that is gone for an event is what a driver refuses; nothing else was wrong.
  for (const std::string& violation : gpu->violations()) {
    EXPECT_THAT(violation, ::testing::HasSubstr("which device 0 has not"));
  }
  allocator.reset();
  gpu = std::make_unique<simgpu::SimDriver>();
}

TEST_F(SeveralStreams, WhatAStreamRefusesIsPassedByWithoutWaitingForTheDevice) {
  start({.capacity = 16 * MiB, .settings = "stream_budget:0"});
  const DeviceAddress low = alloc(8 * MiB, side);
  const DeviceAddress high = alloc(8 * MiB, 0);
  free(low);
  free(high);
  faults->fail({.kind = DriverCall::event_record, .nth = 1, .status = DriverStatus::unknown});
  const DeviceAddress taken = alloc(8 * MiB, third);  // one of them; the other's stream refused
  EXPECT_EQ(faults->fired(), 1U);
  EXPECT_EQ(allocator->counters().retries, 0U);
  free(taken);
}

// A step of a program on three streams, over and over: at first it makes windows, then it has them.
TEST_F(SeveralStreams, AProgramThatRepeatsSettles) {
  start({.capacity = 256 * MiB, .settings = "stream_budget:0"});
  std::uint64_t mapped = 0;
  for (int step = 0; step < 40; ++step) {
    std::vector<DeviceAddress> held;
    for (std::uint64_t i = 0; i < 12; ++i) {
      const DeviceAddress temporary = alloc((5 + i * 7 % 11) * MiB + 512 * i, 0, 10000);
      held.push_back(alloc((3 + i % 5) * MiB, i % 2 == 0 ? side : third, 10000));
      free(temporary);
      if (i % 3 == 2) {
        free(held.front());
        held.erase(held.begin());
      }
    }
    for (const DeviceAddress address : held) free(address);
    gpu->device_synchronize(0);
    if (step == 29) mapped = calls(DriverCall::mem_map);
  }
  EXPECT_EQ(calls(DriverCall::mem_map), mapped);
}

}  // namespace
}  // namespace gapless
