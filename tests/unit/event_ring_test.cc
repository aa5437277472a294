// EventRing: one thread pushes, one takes; ThreadSanitizer watches them in CI.
#include "allocator/device/event_ring.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"
#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;

AllocatorEvent numbered(std::uint64_t number) {
  AllocatorEvent event;
  event.address = number;
  return event;
}

TEST(EventRing, SaysHowManyWereLostAndWhere) {
  EventRing ring(8);
  for (std::uint64_t i = 1; i <= 20; ++i) ring.push(numbered(i));
  std::vector<std::uint64_t> seen;
  const auto take = [&] {
    ring.take([&](const AllocatorEvent& event) {
      seen.push_back(event.kind == AllocatorEvent::Kind::lost ? 1000 + event.bytes : event.address);
    });
  };
  take();
  EXPECT_EQ(seen.size(), 7U);  // room for one that says so is kept
  ring.push(numbered(21));
  take();
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4, 5, 6, 7, 1013, 21));
  EXPECT_EQ(ring.lost(), 13U);
}

TEST(EventRingThreads, HandsEveryEventOverBetweenThreads) {
  EventRing ring(64);
  constexpr std::uint64_t kEvents = 200000;
  std::atomic<bool> done{false};
  std::thread pusher([&] {
    for (std::uint64_t i = 1; i <= kEvents; ++i) ring.push(numbered(i));
    done = true;
  });
  std::uint64_t counted = 0;
  std::uint64_t last = 0;
  bool in_order = true;
  const auto take = [&] {
    ring.take([&](const AllocatorEvent& event) {
      if (event.kind == AllocatorEvent::Kind::lost) {
        counted += event.bytes;
        last += event.bytes;
        return;
      }
      ++counted;
      in_order = in_order && event.address == last + 1;
      last = event.address;
    });
  };
  while (!done) take();
  pusher.join();
  take();
  ring.push(numbered(kEvents + 1));  // what was lost at the end is told before the next
  take();
  EXPECT_TRUE(in_order);
  EXPECT_EQ(counted, kEvents + 1);
}

// Requests of several threads go to the ring one at a time, in the order of the device's lock.
TEST(EventRingThreads, TellsWhatADeviceDid) {
  simgpu::SimDriver gpu({.devices = {{.total_bytes = GiB}}});
  DeviceProperties properties;
  gpu.device_properties(0, properties);
  DeviceAllocator allocator(gpu, 0, properties, {});
  const auto ring = std::make_shared<EventRing>(1 << 15);
  ASSERT_TRUE(allocator.begin_recording(ring, nullptr).has_value());
  EXPECT_FALSE(allocator.begin_recording(ring, nullptr).has_value());
  std::atomic<bool> done{false};
  std::int64_t live_bytes = 0;
  std::uint64_t requests = 0;
  bool never_negative = true;
  std::thread taker([&] {
    const auto take = [&] {
      ring->take([&](const AllocatorEvent& event) {
        if (event.kind == AllocatorEvent::Kind::alloc) {
          live_bytes += static_cast<std::int64_t>(event.bytes);
        } else if (event.kind == AllocatorEvent::Kind::free) {
          live_bytes -= static_cast<std::int64_t>(event.bytes);
        } else {
          return;
        }
        ++requests;
        never_negative = never_negative && live_bytes >= 0;
      });
    };
    while (!done) take();
    take();
  });
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 3000; ++i) {
        DeviceAddress address = 0;
        ASSERT_EQ(allocator.alloc(512 + (i + t) % 7 * MiB, 0, address), Status::ok);
        ASSERT_EQ(allocator.free(address), Status::ok);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  taker.join();
  allocator.end_recording();
  EXPECT_EQ(ring->lost(), 0U);
  EXPECT_EQ(requests, 2U * 3 * 3000);
  EXPECT_EQ(live_bytes, 0);
  EXPECT_TRUE(never_negative);
}

}  // namespace
}  // namespace gapless
