// Many threads on one device; ThreadSanitizer watches them in CI.
#include <atomic>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/device/allocator.h"
#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

using ::testing::IsEmpty;

TEST(Threads, ShareADevice) {
  simgpu::SimDriver gpu({.devices = {{.total_bytes = GiB}}});
  DeviceProperties properties;
  gpu.device_properties(0, properties);
  {
    DeviceAllocator allocator(gpu, 0, properties, {});
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        std::vector<DeviceAddress> live;
        for (int i = 0; i < 4000; ++i) {
          if (live.size() < 20 && random() % 2 == 0) {
            DeviceAddress address = 0;
            if (allocator.alloc(1 + random() % (3 * MiB), 0, address) == Status::ok) {
              live.push_back(address);
            }
          } else if (!live.empty()) {
            std::swap(live[random() % live.size()], live.back());
            EXPECT_EQ(allocator.free(live.back()), Status::ok);
            live.pop_back();
          }
          if (i % 500 == 0) {
            (void)allocator.statistics();
            (void)allocator.report();
          }
        }
        for (const DeviceAddress address : live) EXPECT_EQ(allocator.free(address), Status::ok);
      });
    }
    for (std::thread& thread : threads) thread.join();
    allocator.validate();
    EXPECT_EQ(allocator.statistics().allocation.all.current, 0);
  }
  EXPECT_EQ(gpu.leaks(), "");
}

// Blocks that one thread made and hands to another, as the threads of an autograd engine and of
// data loaders do: the other uses them on its own stream and frees them.
class Exchange {
 public:
  struct Item {
    DeviceAddress address;
    std::uint64_t bytes;
    StreamHandle stream;  // that wrote it last
  };
  void put(const Item& item) {
    const std::scoped_lock lock(mutex_);
    items_.push_back(item);
  }
  bool take(Item& item) {
    const std::scoped_lock lock(mutex_);
    if (items_.empty()) return false;
    item = items_.front();
    items_.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<Item> items_;
};

TEST(Threads, SixteenHandBlocksToEachOther) {
  constexpr unsigned kThreads = 16;
  constexpr unsigned kStreams = 5;
  simgpu::SimDriver gpu({.devices = {{.total_bytes = GiB}}});
  DeviceProperties properties;
  gpu.device_properties(0, properties);
  std::vector<StreamHandle> streams(kStreams, 0);
  for (unsigned i = 1; i < kStreams; ++i) gpu.stream_create(0, streams[i]);
  {
    DeviceAllocator allocator(gpu, 0, properties, {});
    Exchange exchange;
    std::atomic<std::uint64_t> handed{0};
    const auto use = [&](const Exchange::Item& item, StreamHandle stream) {
      if (item.stream != stream) gpu.order(0, item.stream, stream);
      const simgpu::Access access{item.address, item.bytes, true};
      EXPECT_EQ(gpu.launch(0, stream, 2000, {&access, 1}), DriverStatus::ok);
    };
    const auto work = [&](unsigned thread) {
      std::mt19937 random(thread);
      const StreamHandle stream = streams[thread % kStreams];
      for (int i = 0; i < 400; ++i) {
        Exchange::Item item{0, 1 + random() % (3 * MiB), stream};
        if (random() % 3 != 0) {
          if (allocator.alloc(item.bytes, stream, item.address) != Status::ok) continue;
          use(item, stream);
          exchange.put(item);
        }
        if (exchange.take(item)) {
          use(item, stream);
          EXPECT_EQ(allocator.record_stream(item.address, stream), Status::ok);
          EXPECT_EQ(allocator.free(item.address), Status::ok);
          ++handed;
        }
        if (random() % 100 == 0) {
          (void)allocator.statistics();
          (void)allocator.report();
          EXPECT_EQ(allocator.trim(64 * MiB), Status::ok);
        }
        if (i % 97 == 0) gpu.advance(50000);
      }
    };
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
    for (std::thread& thread : threads) thread.join();
    Exchange::Item item{};
    while (exchange.take(item)) EXPECT_EQ(allocator.free(item.address), Status::ok);
    allocator.validate();
    EXPECT_EQ(allocator.statistics().allocation.all.current, 0);
    EXPECT_GT(handed, 2000U);
  }
  EXPECT_EQ(gpu.leaks(), "");
  EXPECT_THAT(gpu.violations(), IsEmpty());
}

// Pools, pins, captures' filters and limits from other threads than those that allocate.
TEST(Threads, SettingsChangeBesideRequests) {
  simgpu::SimDriver gpu({.devices = {{.total_bytes = GiB}}});
  DeviceProperties properties;
  gpu.device_properties(0, properties);
  {
    DeviceAllocator allocator(gpu, 0, properties, {});
    std::atomic<bool> done{false};
    std::thread settings([&] {
      for (std::uint64_t i = 1; !done; ++i) {
        const PoolId pool{0, 1 + i % 3};
        EXPECT_EQ(allocator.begin_pool(pool, [](StreamHandle stream) { return stream != 0; }),
                  Status::ok);
        EXPECT_EQ(allocator.end_pool(pool), Status::ok);
        allocator.set_limit_bytes(i % 2 == 0 ? 512 * MiB : UINT64_MAX);
        EXPECT_EQ(allocator.release_pool(pool), Status::ok);
      }
    });
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        for (int i = 0; i < 1000; ++i) {
          DeviceAddress address = 0;
          ASSERT_EQ(allocator.alloc(1 + random() % MiB, 0, address), Status::ok);
          EXPECT_EQ(allocator.pin(address), Status::ok);
          EXPECT_EQ(allocator.free(address), Status::ok);
          EXPECT_EQ(allocator.unpin(address), Status::ok);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    done = true;
    settings.join();
    allocator.validate();
    EXPECT_EQ(allocator.statistics().active_bytes.all.current, 0);
  }
  EXPECT_EQ(gpu.leaks(), "");
  EXPECT_THAT(gpu.violations(), IsEmpty());
}

}  // namespace
}  // namespace gapless
