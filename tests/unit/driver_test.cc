#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/driver/counting_driver.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/faulty_driver.h"
#include "simgpu/sim_driver.h"
#if __has_include(<cuda.h>)
#include <cuda.h>

#include "allocator/driver/cuda_abi.h"
#endif

namespace gapless {
namespace {

TEST(DriverCall, NamesAreUniqueAndFound) {
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    const auto call = static_cast<DriverCall>(i);
    EXPECT_EQ(driver_call_named(name_of(call)), call);
    EXPECT_TRUE(cuda_name_of(call).starts_with("cu"));
  }
  EXPECT_FALSE(driver_call_named("mem_crate"));
  EXPECT_TRUE(is_host_sync(DriverCall::mem_free));
  EXPECT_FALSE(is_host_sync(DriverCall::mem_unmap));
}

TEST(CountingDriver, CountsFailuresAndTime) {
  simgpu::SimDriver gpu(
      {.devices = {{.total_bytes = 4 * MiB}}, .costs = simgpu::load_cost_profile("a100")});
  CountingDriver driver(gpu, [&] { return gpu.now_ns(); });
  MemHandle handle = 0;
  EXPECT_EQ(driver.mem_create(0, 4 * MiB, handle), DriverStatus::ok);
  MemHandle second = 0;
  EXPECT_EQ(driver.mem_create(0, 2 * MiB, second), DriverStatus::out_of_memory);
  const DriverCallCounts before = driver.counts();
  EXPECT_EQ(before.of(DriverCall::mem_create), 2U);
  EXPECT_EQ(before.failures[static_cast<std::size_t>(DriverCall::mem_create)], 1U);
  EXPECT_EQ(before.total_ns(), 2U * 193000);
  EventHandle event = 0;
  driver.event_create(0, event);
  gpu.launch(0, 0, 1000000, {});
  driver.event_record(0, event, 0);
  EXPECT_EQ(driver.event_query(0, event), DriverStatus::not_ready);
  driver.event_synchronize(0, event);
  const DriverCallCounts since = driver.counts().since(before);
  EXPECT_EQ(since.total(), 4U);
  EXPECT_EQ(since.host_syncs(), 1U);
  EXPECT_EQ(since.failures[static_cast<std::size_t>(DriverCall::event_query)], 0U);
}

TEST(FaultyDriver, FailsTheNthCallOfAKindOnce) {
  simgpu::SimDriver gpu;
  FaultyDriver driver(gpu);
  driver.fail({.kind = DriverCall::mem_create, .nth = 2, .status = DriverStatus::out_of_memory});
  MemHandle handle = 0;
  EventHandle event = 0;
  EXPECT_EQ(driver.mem_create(0, 2 * MiB, handle), DriverStatus::ok);
  EXPECT_EQ(driver.event_create(0, event), DriverStatus::ok);  // another kind does not count
  EXPECT_EQ(driver.mem_create(0, 2 * MiB, handle), DriverStatus::out_of_memory);
  EXPECT_EQ(gpu.used_bytes(0), 2 * MiB);  // the failed call changed nothing
  EXPECT_EQ(driver.mem_create(0, 2 * MiB, handle), DriverStatus::ok);
  EXPECT_EQ(driver.fired(), 1U);
}

TEST(FaultyDriver, FailsEveryCallFromTheNthOn) {
  simgpu::SimDriver gpu;
  FaultyDriver driver(gpu);
  driver.fail({.kind = {}, .nth = 2, .status = DriverStatus::unknown, .persistent = true});
  std::int32_t count = 0;
  EXPECT_EQ(driver.device_count(count), DriverStatus::ok);
  MemHandle handle = 0;
  EXPECT_EQ(driver.mem_create(0, 2 * MiB, handle), DriverStatus::unknown);
  EXPECT_EQ(driver.device_synchronize(0), DriverStatus::unknown);
  EXPECT_EQ(driver.fired(), 2U);
  driver.heal();
  EXPECT_EQ(driver.mem_create(0, 2 * MiB, handle), DriverStatus::ok);
}

TEST(CudaDriver, SaysWhyItCannotOpen) {
  std::string error;
  const auto driver = CudaDriver::open(error);
  if (driver) GTEST_SKIP() << "there is a CUDA driver here; tests/gpu uses it";
  EXPECT_NE(error, "");
  EXPECT_NE(error.find("CUDA"), std::string::npos) << error;
}

#if __has_include(<cuda.h>)
TEST(CudaAbi, AgreesWithCudaHeader) {
  namespace abi = cuda_abi;
  static_assert(sizeof(abi::MemAllocationProp) == sizeof(CUmemAllocationProp));
  static_assert(offsetof(abi::MemAllocationProp, location) ==
                offsetof(CUmemAllocationProp, location));
  static_assert(offsetof(abi::MemAllocationProp, alloc_flags) ==
                offsetof(CUmemAllocationProp, allocFlags));
  static_assert(sizeof(abi::MemAccessDesc) == sizeof(CUmemAccessDesc));
  static_assert(offsetof(abi::MemAccessDesc, flags) == offsetof(CUmemAccessDesc, flags));
  static_assert(sizeof(abi::DevicePtr) == sizeof(CUdeviceptr));
  static_assert(sizeof(abi::AllocationHandle) == sizeof(CUmemGenericAllocationHandle));
  EXPECT_EQ(abi::kLocationTypeDevice, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(abi::kLocationTypeHostNuma, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(abi::kHandleTypeNone, CU_MEM_HANDLE_TYPE_NONE);
  EXPECT_EQ(abi::kHandleTypeFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(abi::kHandleTypeFabric, CU_MEM_HANDLE_TYPE_FABRIC);
  EXPECT_EQ(sizeof(SharedHandle::fabric), sizeof(CUmemFabricHandle));
  EXPECT_EQ(abi::kAttributeFdSupported,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  EXPECT_EQ(abi::kAttributeRdmaWithVmmSupported,
            CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  EXPECT_EQ(abi::kAttributeFabricSupported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  EXPECT_EQ(abi::kAttributeHostNumaId, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
  EXPECT_EQ(abi::kAttributeHostNumaVmmSupported,
            CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  EXPECT_EQ(abi::kAllocationTypePinned, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(abi::kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(abi::kGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  EXPECT_EQ(abi::kAttributeComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(abi::kAttributeComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(abi::kAttributeVirtualMemoryManagementSupported,
            CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  EXPECT_EQ(abi::kStreamNonBlocking, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(abi::kEventDisableTiming, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(static_cast<int>(DriverStatus::out_of_memory), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(static_cast<int>(DriverStatus::invalid_handle), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(static_cast<int>(DriverStatus::not_ready), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(static_cast<int>(DriverStatus::illegal_address), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(static_cast<int>(DriverStatus::not_supported), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(static_cast<int>(DriverStatus::capture_unsupported),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(static_cast<int>(DriverStatus::capture_invalidated),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(static_cast<int>(DriverStatus::capture_isolation), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(static_cast<int>(DriverStatus::captured_event), CUDA_ERROR_CAPTURED_EVENT);
}
#endif

}  // namespace
}  // namespace gapless
