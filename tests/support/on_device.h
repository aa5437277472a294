// OnDevice: what most tests of the allocator stand on: one device, simulated, judged at the end.
//
//   DeviceAllocator -> CountingDriver (calls()) -> FaultyDriver (faults) -> SimDriver (gpu)
//
//   start({.capacity = 32 * MiB, .settings = ""});
//   const DeviceAddress a = alloc(4 * MiB, side);      // and a kernel on that stream writes it
//   free(a);
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/device/device_allocator.h"
#include "allocator/driver/counting_driver.h"
#include "allocator/driver/faulty_driver.h"
#include "simgpu/sim_driver.h"

namespace gapless::testing {

struct DeviceSetup {
  std::uint64_t capacity = 64 * MiB;
  std::string settings = "";
  bool keep_contents = false;
  bool has_vmm = true;
  bool has_fabric = false;
  std::uint64_t host_bytes = 0;              // that the device may map
  std::size_t devices = 1;                   // the allocator is the first one's
  std::uint64_t address_bytes = UINT64_MAX;  // that may be reserved
};

class OnDevice : public ::testing::Test {
 protected:
  void start(const DeviceSetup& setup = {}) {
    const simgpu::SimDevice device{.total_bytes = setup.capacity,
                                   .has_vmm = setup.has_vmm,
                                   .host_bytes = setup.host_bytes,
                                   .has_fabric = setup.has_fabric};
    gpu = std::make_unique<simgpu::SimDriver>(
        simgpu::SimOptions{.devices = std::vector(setup.devices, device),
                           .address_bytes = setup.address_bytes,
                           .keep_contents = setup.keep_contents});
    faults = std::make_unique<FaultyDriver>(*gpu);
    counting = std::make_unique<CountingDriver>(*faults);
    DeviceProperties properties;
    gpu->device_properties(0, properties);
    std::vector<std::string> warnings;
    allocator = std::make_unique<DeviceAllocator>(*counting, 0, properties,
                                                  parse_options(setup.settings, warnings));
    EXPECT_THAT(warnings, ::testing::IsEmpty());
    gpu->stream_create(0, side);
    gpu->stream_create(0, third);
  }
  /// Nothing may be live any more: what is still with the device then has leaked.
  void TearDown() override {
    if (!gpu) return;
    allocator.reset();
    EXPECT_EQ(gpu->leaks(), "");
    EXPECT_THAT(gpu->violations(), ::testing::IsEmpty());
  }

  /// A block, which a kernel on that stream writes.
  DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream = 0,
                      std::uint64_t kernel_ns = 1000000) {
    DeviceAddress address = 0;
    EXPECT_EQ(allocator->alloc(bytes, stream, address), Status::ok) << allocator->last_failure();
    allocator->validate();
    if (address != 0) write(address, bytes, stream, kernel_ns);
    return address;
  }
  [[nodiscard]] Status try_alloc(std::uint64_t bytes, StreamHandle stream = 0) {
    DeviceAddress address = 0;
    const Status status = allocator->alloc(bytes, stream, address);
    allocator->validate();
    if (status == Status::ok) free(address);
    return status;
  }
  void write(DeviceAddress address, std::uint64_t bytes, StreamHandle stream,
             std::uint64_t ns = 1000000) {
    const simgpu::Access access{address, bytes, true};
    gpu->launch(0, stream, ns, {&access, 1});
  }
  void free(DeviceAddress address) {
    EXPECT_EQ(allocator->free(address), Status::ok);
    allocator->validate();
  }
  /// So many blocks of random sizes, of which eight stay, and long kernels that use them: where
  /// few windows may be mapped they come and are retired.
  void churn(int count) {
    for (int i = 0; i < count; ++i) {
      churned.push_back(alloc(MiB + draw() % (7 * MiB), 0, 10'000'000));
      if (churned.size() < 8) continue;
      const std::size_t leaving = draw() % churned.size();
      free(std::exchange(churned[leaving], churned.back()));
      churned.pop_back();
    }
  }
  void end_churn() {
    for (const DeviceAddress address : std::exchange(churned, {})) free(address);
  }
  /// Requests of these streams (none: of all) go to the pool.
  void begin(PoolId id, std::vector<StreamHandle> streams = {}) {
    const auto filter = [streams](StreamHandle stream) {
      return streams.empty() || std::find(streams.begin(), streams.end(), stream) != streams.end();
    };
    EXPECT_EQ(allocator->begin_pool(id, filter), Status::ok);
  }
  void end(PoolId id) { EXPECT_EQ(allocator->end_pool(id), Status::ok); }
  void release(PoolId id) { EXPECT_EQ(allocator->release_pool(id), Status::ok); }

  [[nodiscard]] std::uint64_t reserved() const {
    return static_cast<std::uint64_t>(allocator->statistics().reserved_bytes.all.current);
  }
  [[nodiscard]] std::uint64_t calls(DriverCall kind) const { return counting->counts().of(kind); }

  std::unique_ptr<simgpu::SimDriver> gpu;
  std::unique_ptr<FaultyDriver> faults;
  std::unique_ptr<CountingDriver> counting;
  std::unique_ptr<DeviceAllocator> allocator;
  StreamHandle side = 0;
  StreamHandle third = 0;
  std::vector<DeviceAddress> churned;
  std::minstd_rand draw{7};
};

}  // namespace gapless::testing
