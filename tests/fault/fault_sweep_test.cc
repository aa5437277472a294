// Every driver call of a scenario fails once, and then from then on: after each, everything is as
// it was, nothing is left behind, and the next request works. A request is refused only if it does
// not fit without the call that fails: a call that fails once refuses none that fits.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"
#include "allocator/driver/faulty_driver.h"
#include "simgpu/sim_driver.h"
#include "tests/support/environment.h"
#include "tests/support/what_fits.h"

namespace gapless {
namespace {

enum class Part {
  memory,  // growth, holes, windows, streams, trim
  pools,   // private pools, graphs, checkpoints, sharing, pins, spill, sleep
};

struct Variant {
  const char* name;
  Part part;
  bool vmm;
  DriverStatus status;
  bool persistent;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class FaultSweep : public ::testing::TestWithParam<Variant> {};

constexpr std::uint64_t kCapacity = 128 * MiB;
constexpr std::uint64_t kSpill = 128 * MiB;
constexpr std::uint64_t kPage = 2 * MiB;

// Whether memory that is free here can be had while calls of that kind fail, and new memory.
bool serves_what_is_free(DriverCall failing) {
  return failing != DriverCall::mem_map && failing != DriverCall::mem_set_access &&
         failing != DriverCall::address_reserve && failing != DriverCall::stream_is_capturing;
}
bool serves_what_is_new(DriverCall failing) {
  return serves_what_is_free(failing) && failing != DriverCall::mem_create &&
         failing != DriverCall::mem_alloc;
}

// The scenario: growth, holes, windows made, extended, repaired and evicted, a second stream that
// shares memory and blocks with the first, trim.
class Scenario {
 public:
  explicit Scenario(bool vmm, Part part = Part::memory)
      : part_(part),
        vmm_(vmm),
        gpu_({.devices = {{.total_bytes = kCapacity, .has_vmm = vmm, .host_bytes = 256 * MiB}}}),
        driver_(gpu_) {
    gpu_.stream_create(0, side_);
    gpu_.stream_create(0, third_);
    DeviceProperties properties;
    gpu_.device_properties(0, properties);
    Options options;
    options.window_factor = 1;
    options.window_floor = 0;
    if (part == Part::pools) options.spill = kSpill;
    options.handle_parts = 10;
    allocator_ = std::make_unique<DeviceAllocator>(driver_, 0, properties, options);
  }

  void run() { part_ == Part::memory ? run_memory() : run_pools(); }

  void run_memory() {
    std::vector<DeviceAddress> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back(alloc(2 * MiB, 0));
    for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
    const DeviceAddress hole = alloc(MiB, 0);
    const DeviceAddress window = alloc(6 * MiB, 0);
    free(window);
    const DeviceAddress extended = alloc(8 * MiB, 0);
    free(extended);
    churn(1);
    const DeviceAddress other = alloc(5 * MiB, side_);
    gpu_.advance(1000000);
    free(other);
    churn(3);
    free(hole);
    trim(20 * MiB);
    const DeviceAddress again = alloc(19 * MiB, 0);
    trim(0);
    free(again);
    for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i]);
    trim(0);
  }

  void run_pools() {
    const PoolId eager{0, 1};
    const PoolId whole{0, 2};
    const PoolId graphs{1, 0};
    // An eager pool, beside general memory, with a window of its own.
    std::vector<DeviceAddress> kept;
    begin(eager, {0, side_});
    for (int i = 0; i < 6; ++i) kept.push_back(alloc(3 * MiB, i % 2 == 0 ? 0 : side_));
    for (int i = 0; i < 6; i += 2) free(std::exchange(kept[i], 0));
    kept.push_back(alloc(7 * MiB, 0));
    end(eager);
    begin(whole, {0});
    EXPECT_EQ(allocator_->set_pool_no_split(whole, true), Status::ok);
    kept.push_back(alloc(3 * MiB, 0));
    end(whole);
    // A graph of two branches that share memory, run twice; its blocks go and come back.
    begin(graphs, {side_, third_});
    capturing_ = true;
    gpu_.begin_capture(0, side_);
    const DeviceAddress a = alloc(5 * MiB, side_);
    gpu_.order(0, side_, third_);
    free(a);
    const DeviceAddress b = alloc(4 * MiB, third_);
    gpu_.order(0, third_, side_);
    const DeviceAddress c = alloc(2 * MiB, side_);
    free(b);
    const simgpu::CapturedGraph graph = gpu_.end_capture(side_);
    capturing_ = false;
    end(graphs);
    gpu_.replay(graph, 0);
    const PoolState state = allocator_->checkpoint_pool(graphs);
    free(c);
    gpu_.device_synchronize(0);
    PoolDelta delta;
    EXPECT_EQ(allocator_->restore_pool(state, delta), Status::ok);
    for (const DeviceAddress address : delta.freed) note_free(address);
    for (const DeviceAddress address : delta.allocated) note_alloc(address, 2 * MiB, graphs);
    gpu_.replay(graph, 0);
    gpu_.device_synchronize(0);
    // A block that another process opens, freed meanwhile; a pinned one.
    const DeviceAddress shared = alloc(5 * MiB, 0);
    SharedBlock told;
    if (shared != 0 && allocator_->share(shared, told) == Status::ok) {
      (void)imported_.open(told);
      EXPECT_EQ(allocator_->pin(shared), Status::ok);
      EXPECT_EQ(allocator_->free(shared), Status::ok);  // it is held
      (void)imported_.close();
      EXPECT_EQ(allocator_->unshare(shared), Status::ok);
      EXPECT_NO_THROW(allocator_->validate());
      EXPECT_EQ(allocator_->unpin(shared), Status::ok);
      note_free(shared);
    } else {
      free(shared);
    }
    // More than the device has.
    kept.push_back(alloc(100 * MiB, side_));
    kept.push_back(alloc(60 * MiB, 0));
    for (std::size_t i = kept.size() - 2; i < kept.size(); ++i) free(std::exchange(kept[i], 0));
    trim(40 * MiB);
    if (allocator_->sleep_pool(eager, false) == Status::ok) (void)allocator_->wake_pool(eager);
    EXPECT_NO_THROW(allocator_->validate());
    driver_.heal();  // what sleeps must wake before its blocks are touched
    EXPECT_EQ(allocator_->wake_pool(eager), Status::ok);
    for (const DeviceAddress address : kept) free(address);
    for (const DeviceAddress address : allocator_->pool_blocks(graphs)) free(address);
    for (const PoolId& pool : {eager, whole, graphs}) {
      EXPECT_EQ(allocator_->release_pool(pool), Status::ok);
    }
    trim(0);
  }

  // Blocks of ever new sizes, with others in the way of the windows there are; with several streams
  // each second block is the side stream's, and each third is used by the other stream too.
  void churn(int streams) {
    std::minstd_rand random(7);
    std::vector<DeviceAddress> live;
    for (int i = 0; i < (streams > 1 ? 40 : 100); ++i) {
      const StreamHandle stream = streams > 1 && i % 2 == 1 ? side_ : 0;
      live.push_back(alloc(MiB + random() % (7 * MiB), stream));
      if (streams > 1 && i % 3 == 1 && live.back() != 0) {
        EXPECT_EQ(allocator_->record_stream(live.back(), stream == 0 ? side_ : 0), Status::ok);
      }
      gpu_.advance(streams > 1 ? 100 : 1000000);
      if (live.size() < 8) continue;
      const std::size_t leaving = random() % live.size();
      free(std::exchange(live[leaving], live.back()));
      live.pop_back();
    }
    for (const DeviceAddress address : live) free(address);
  }

  // Everything still works, and goes.
  void finish() {
    driver_.heal();
    EXPECT_EQ(imported_.close(), DriverStatus::ok);
    DeviceAddress address = 0;
    ASSERT_EQ(allocator_->alloc(64 * MiB, 0, address), Status::ok) << allocator_->last_failure();
    ASSERT_TRUE(gpu_.resolve(0, address, 64 * MiB));
    ASSERT_EQ(allocator_->free(address), Status::ok);
    allocator_->validate();
    windows_ = allocator_->counters().windows;
    peak_spilled_bytes_ = allocator_->spill().peak_bytes;
    waits_ = allocator_->counters().waits;
    allocator_.reset();
    EXPECT_EQ(gpu_.leaks(), "");
    EXPECT_EQ(gpu_.used_bytes(0), 0U);
    EXPECT_EQ(gpu_.used_host_bytes(0), 0U);
    EXPECT_TRUE(gpu_.violations().empty()) << gpu_.violations().front();
  }

  void fail(const Fault& fault) {
    fault_ = fault;
    driver_.fail(fault);
  }
  FaultyDriver& driver() { return driver_; }
  [[nodiscard]] WindowCounters windows() const { return windows_; }
  [[nodiscard]] std::uint64_t waits() const { return waits_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] std::uint64_t peak_spilled_bytes() const { return peak_spilled_bytes_; }

 private:
  void begin(PoolId pool, std::vector<StreamHandle> streams) {
    EXPECT_EQ(allocator_->begin_pool(pool,
                                     [streams](StreamHandle stream) {
                                       return std::find(streams.begin(), streams.end(), stream) !=
                                              streams.end();
                                     }),
              Status::ok);
    begun_.emplace_back(pool, std::set(streams.begin(), streams.end()));
  }
  void end(PoolId pool) {
    EXPECT_EQ(allocator_->end_pool(pool), Status::ok);
    begun_.pop_back();
  }
  [[nodiscard]] PoolId pool_of(StreamHandle stream) const {
    return !begun_.empty() && begun_.back().second.contains(stream) ? begun_.back().first
                                                                    : PoolId{};
  }
  void note_alloc(DeviceAddress address, std::uint64_t bytes, PoolId pool) {
    Live& block = live_[address];
    block = {bytes, pool,
             gpu_.resolve(0, address, bytes).value_or(std::vector<simgpu::PhysicalRange>{})};
    what_fits_.begin(block.ranges, pool);
  }
  void note_free(DeviceAddress address) {
    what_fits_.end(live_.at(address).ranges, {}, 0);
    live_.erase(address);
  }
  // What was asked for is free or left, wherever no call that fails is needed to have it. Without
  // windows what is free must be given back first, so no call but requests of memory may fail.
  bool fits(std::uint64_t bytes, StreamHandle stream) {
    const std::uint64_t need = align_up(bytes, kPage);
    const std::uint64_t left = kCapacity - gpu_.used_bytes(0);
    const PoolId pool = pool_of(stream);
    const bool free_counts =
        !fault_.persistent || (fault_.kind && serves_what_is_free(*fault_.kind));
    const bool new_counts = !fault_.persistent || (fault_.kind && serves_what_is_new(*fault_.kind));
    std::uint64_t sum = new_counts ? left : 0;
    if (free_counts && !capturing_ && (vmm_ || !fault_.persistent)) {
      sum += what_fits_.free_bytes([&](const testing::WhatFits::Free& one) {
        return !one.on_host && std::all_of(one.users.begin(), one.users.end(), [&](PoolId user) {
          return user == PoolId{} || user == pool;
        });
      });
    }
    if (part_ == Part::pools && !capturing_ && !fault_.persistent) {
      sum += kSpill - gpu_.used_host_bytes(0);
    }
    return sum >= need;
  }
  DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream) {
    const DeviceStatistics before = allocator_->statistics();
    const std::uint64_t fired = driver_.fired();
    DeviceAddress address = 0;
    const Status status = allocator_->alloc(bytes, stream, address);
    EXPECT_NO_THROW(allocator_->validate());
    if (status == Status::ok) {
      EXPECT_TRUE(gpu_.resolve(0, address, bytes));
      note_alloc(address, bytes, pool_of(stream));
      const simgpu::Access access{address, bytes, true};
      gpu_.launch(0, stream, 1000, {&access, 1});
      return address;
    }
    ++refused_;
    EXPECT_NE(driver_.fired(), fired) << "refused without a fault";
    EXPECT_FALSE(fits(bytes, stream)) << bytes << " B refused: " << allocator_->last_failure();
    EXPECT_EQ(address, 0U);
    // As it was before the request. Memory that the driver would not take back stays counted.
    const DeviceStatistics after = allocator_->statistics();
    EXPECT_EQ(after.allocated_bytes.all.current, before.allocated_bytes.all.current);
    EXPECT_EQ(after.allocation.all.current, before.allocation.all.current);
    if (driver_.fired() == fired + 1) {
      EXPECT_EQ(after.reserved_bytes.all.current, before.reserved_bytes.all.current);
      EXPECT_EQ(gpu_.used_bytes(0), static_cast<std::uint64_t>(after.reserved_bytes.all.current));
    }
    return 0;
  }
  void free(DeviceAddress address) {
    EXPECT_EQ(allocator_->free(address), Status::ok);
    if (address != 0) note_free(address);
    EXPECT_NO_THROW(allocator_->validate());
  }
  void trim(std::uint64_t keep) {
    (void)allocator_->trim(keep);
    EXPECT_NO_THROW(allocator_->validate());
  }

  struct Live {
    std::uint64_t bytes = 0;
    PoolId pool;
    std::vector<simgpu::PhysicalRange> ranges;
  };

  Part part_;
  bool vmm_;
  simgpu::SimDriver gpu_;
  FaultyDriver driver_;
  StreamHandle side_ = 0;
  StreamHandle third_ = 0;
  std::unique_ptr<DeviceAllocator> allocator_;
  ImportedBlock imported_{driver_, 0};
  Fault fault_;
  bool capturing_ = false;
  std::vector<std::pair<PoolId, std::set<StreamHandle>>> begun_;
  std::map<DeviceAddress, Live> live_;
  testing::WhatFits what_fits_{gpu_};
  std::uint64_t refused_ = 0;
  std::uint64_t peak_spilled_bytes_ = 0;
  std::uint64_t waits_ = 0;
  WindowCounters windows_;
};

TEST(FaultScenario, ReachesAllThatCallsADriver) {
  Scenario scenario(true);
  scenario.run();
  scenario.finish();
  EXPECT_EQ(scenario.refused(), 0U);
  const WindowCounters& windows = scenario.windows();
  EXPECT_GT(windows.made, 0U);
  EXPECT_GT(windows.extended, 0U);
  EXPECT_GT(windows.repaired, 0U);
  EXPECT_GT(windows.evicted, 0U);
  EXPECT_GT(windows.hits, 0U);
  EXPECT_GT(scenario.waits(), 0U);
}

TEST(FaultScenario, WithPoolsReachesTheHost) {
  Scenario scenario(true, Part::pools);
  scenario.run();
  scenario.finish();
  EXPECT_EQ(scenario.refused(), 0U);
  EXPECT_GT(scenario.windows().made, 1U);
  EXPECT_GT(scenario.peak_spilled_bytes(), 20 * MiB);
}

TEST_P(FaultSweep, EveryCallOfEveryKind) {
  const Variant& variant = GetParam();
  std::uint64_t points = 0;
  std::uint64_t refused = 0;
  std::vector<std::optional<DriverCall>> kinds = {std::nullopt};
  for (std::size_t i = 0; i < kDriverCalls; ++i) kinds.emplace_back(static_cast<DriverCall>(i));
  for (const auto& kind : kinds) {
    for (std::uint64_t nth = 1;; nth += testing::sweep_stride()) {
      SCOPED_TRACE(fmt::format("{} call {}", kind ? name_of(*kind) : "any", nth));
      Scenario scenario(variant.vmm, variant.part);
      scenario.fail(
          {.kind = kind, .nth = nth, .status = variant.status, .persistent = variant.persistent});
      scenario.run();
      const bool fired = scenario.driver().fired() != 0;
      refused += scenario.refused();
      scenario.finish();
      if (HasFailure()) return;
      if (!fired) break;
      ++points;
    }
  }
  fmt::print("{}: {} calls failed, {} requests refused\n", variant.name, points, refused);
  EXPECT_GT(points * testing::sweep_stride(), variant.vmm ? 100U : 10U);
  if (variant.persistent) {
    EXPECT_GT(refused, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, FaultSweep,
    ::testing::Values(
        Variant{"pools_unknown_once", Part::pools, true, DriverStatus::unknown, false},
        Variant{"pools_unknown_from_then_on", Part::pools, true, DriverStatus::unknown, true},
        Variant{"pools_out_of_memory_once", Part::pools, true, DriverStatus::out_of_memory, false},
        Variant{"vmm_unknown_once", Part::memory, true, DriverStatus::unknown, false},
        Variant{"vmm_unknown_from_then_on", Part::memory, true, DriverStatus::unknown, true},
        Variant{"vmm_out_of_memory_once", Part::memory, true, DriverStatus::out_of_memory, false},
        Variant{"vmm_out_of_memory_from_then_on", Part::memory, true, DriverStatus::out_of_memory,
                true},
        Variant{"plain_unknown_once", Part::memory, false, DriverStatus::unknown, false},
        Variant{"plain_out_of_memory_from_then_on", Part::memory, false,
                DriverStatus::out_of_memory, true}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace gapless
