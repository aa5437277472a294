// Gpu: what the GPU tests stand on; skipped, with the reason, where it is not there.
//
//   GAPLESS_GPU_TEST   (not set)    the real driver: libcuda.so.1
//                      simulated    SimDriver in its place
//                      front        the simulated GPU's libcuda.so.1, if LD_LIBRARY_PATH names it:
//                      the real driver's
//                                   class, without a GPU
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/driver/cuda_driver.h"
#include "simgpu/sim_driver.h"

namespace gapless::testing {

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const set = std::getenv("GAPLESS_GPU_TEST");
    const std::string_view where = set == nullptr ? "" : set;
    on_simulated = !where.empty();
    work_takes_time = where != "front";
    if (where == "simulated") {
      driver = std::make_unique<simgpu::SimDriver>(
          simgpu::SimOptions{.devices = {{.host_bytes = GiB}},
                             .costs = simgpu::load_cost_profile("a100"),
                             .keep_contents = true});
    } else {
      std::string error;
      driver = CudaDriver::open(error);
      if (!driver) GTEST_SKIP() << error;
    }
    ASSERT_EQ(driver->device_properties(0, properties), DriverStatus::ok);
    if (!properties.has_vmm) GTEST_SKIP() << properties.name << " has no VMM";
    page = properties.granularity_bytes;
  }

  MemHandle create(Driver& on) const {
    MemHandle handle = 0;
    EXPECT_EQ(on.mem_create(0, page, handle), DriverStatus::ok);
    return handle;
  }
  DeviceAddress reserve(Driver& on, std::uint64_t pages) const {
    DeviceAddress address = 0;
    EXPECT_EQ(on.address_reserve(pages * page, 0, address), DriverStatus::ok);
    return address;
  }
  // `handles` side by side, accessible.
  DeviceAddress map(const std::vector<MemHandle>& handles) const {
    const DeviceAddress address = reserve(*driver, handles.size());
    for (std::size_t i = 0; i < handles.size(); ++i) {
      EXPECT_EQ(driver->mem_map(address + i * page, page, handles[i]), DriverStatus::ok);
    }
    EXPECT_EQ(driver->mem_set_access(address, handles.size() * page, 0), DriverStatus::ok);
    return address;
  }
  void unmap(DeviceAddress address, std::uint64_t pages) const {
    EXPECT_EQ(driver->mem_unmap(address, pages * page), DriverStatus::ok);
    EXPECT_EQ(driver->address_free(address, pages * page), DriverStatus::ok);
  }
  std::vector<std::uint32_t> words(DeviceAddress address, std::uint64_t bytes,
                                   StreamHandle stream = 0) const {
    std::vector<std::uint32_t> read(bytes / 4);
    EXPECT_EQ(driver->copy_to_host(0, read.data(), address, bytes, stream), DriverStatus::ok);
    return read;
  }
  StreamHandle stream() const {
    StreamHandle made = 0;
    EXPECT_EQ(driver->stream_create(0, made), DriverStatus::ok);
    return made;
  }

  // How often to do what a GPU does fast: fewer times where the host fills the memory.
  std::uint32_t times(std::uint32_t on_a_gpu) const {
    return on_simulated ? std::max(2U, on_a_gpu / 5) : on_a_gpu;
  }

  // Of memory that is written: less where the host keeps it (the libraries in front keep 64 MiB).
  std::uint64_t written(std::uint64_t pages_on_a_gpu) const {
    return on_simulated ? std::min<std::uint64_t>(pages_on_a_gpu, 16) : pages_on_a_gpu;
  }

  bool on_simulated = false;
  bool work_takes_time = true;
  std::unique_ptr<Driver> driver;
  DeviceProperties properties;
  std::uint64_t page = 0;
};

}  // namespace gapless::testing
