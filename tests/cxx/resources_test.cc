// The header-only wrappers for CUDA C++ libraries, over libgapless.so and the simulated GPU's
// libcudart and libcuda. Compiled where the CUDA toolkit's headers are.
#include <memory>
#include <type_traits>

#include <gtest/gtest.h>

#include "allocator/cxx/caching_device_allocator.h"
#include "allocator/cxx/memory_resource.h"
// After ours, which it is compared with.
#include <cub/util_allocator.cuh>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

static_assert(cuda::mr::async_resource_with<gapless::memory_resource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<gapless::memory_resource, cuda::mr::host_accessible>);

std::int64_t allocated(gapless_allocator* allocator) {
  gapless_statistics statistics = GAPLESS_STATISTICS_INIT;
  EXPECT_EQ(gapless_stats(allocator, 0, &statistics), GAPLESS_OK);
  return statistics.allocated_bytes.all.current;
}

class MemoryResource : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(gapless_create("limit:1GiB", &allocator_), GAPLESS_OK) << gapless_last_error();
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(gapless_destroy(allocator_), GAPLESS_OK) << gapless_last_error();
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  gapless_allocator* allocator_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST_F(MemoryResource, AllocatesInTheStreamsOrderAndForAll) {
  gapless::memory_resource resource(allocator_);
  void* const a = resource.allocate_async(3 * kMiB, stream_);
  void* const b = resource.allocate(5 * kMiB, 256);
  EXPECT_EQ(allocated(allocator_), 8 * kMiB);
  EXPECT_EQ(cudaMemsetAsync(a, 1, 3 * kMiB, stream_), cudaSuccess);
  resource.deallocate_async(a, 3 * kMiB, stream_);
  resource.deallocate(b, 5 * kMiB, 256);
  EXPECT_EQ(allocated(allocator_), 0);
}

TEST_F(MemoryResource, WorksThroughAReference) {
  gapless::memory_resource resource(allocator_);
  cuda::mr::async_resource_ref<cuda::mr::device_accessible> reference = resource;
  void* const memory = reference.allocate_async(kMiB, 512, stream_);
  EXPECT_EQ(allocated(allocator_), kMiB);
  reference.deallocate_async(memory, kMiB, 512, stream_);
  EXPECT_EQ(allocated(allocator_), 0);
}

TEST_F(MemoryResource, ThrowsWhatResourcesThrow) {
  gapless::memory_resource resource(allocator_);
  EXPECT_THROW((void)resource.allocate_async(2048 * kMiB, stream_), std::bad_alloc);
  EXPECT_THROW((void)resource.allocate(kMiB, 4096), std::invalid_argument);
  EXPECT_THROW(resource.deallocate(this, kMiB), std::runtime_error);
  EXPECT_EQ(resource, gapless::memory_resource(allocator_, 0));
  EXPECT_NE(resource, gapless::memory_resource(nullptr));
}

// As programs make cub's; a conversion of one argument to another's meaning would not be seen.
TEST(CachingDeviceAllocator, HasCubsConstructors) {
  using Ours = gapless::CachingDeviceAllocator;
  static_assert(std::is_default_constructible_v<Ours>);
  static_assert(std::is_constructible_v<Ours, bool>);
  static_assert(std::is_constructible_v<Ours, bool, bool>);
  static_assert(std::is_constructible_v<Ours, unsigned>);
  static_assert(std::is_constructible_v<Ours, int, int, int>);
  static_assert(std::is_constructible_v<Ours, unsigned, unsigned, unsigned, std::size_t, bool>);
  static_assert(!std::is_copy_constructible_v<Ours>);
  static_assert(Ours::INVALID_BIN == cub::CachingDeviceAllocator::INVALID_BIN);
  static_assert(Ours::INVALID_SIZE == cub::CachingDeviceAllocator::INVALID_SIZE);
  static_assert(Ours::INVALID_DEVICE_ORDINAL ==
                cub::CachingDeviceAllocator::INVALID_DEVICE_ORDINAL);
  const auto left_behind = [](auto&& allocator) {
    std::size_t before = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
    void* memory = nullptr;
    {
      auto made = allocator();
      EXPECT_EQ(made->DeviceAllocate(&memory, kMiB), cudaSuccess);
      EXPECT_EQ(made->DeviceFree(memory), cudaSuccess);
    }
    std::size_t after = 0;
    EXPECT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
    return before - after;
  };
  EXPECT_EQ(left_behind([] { return std::make_unique<Ours>(); }), 0);
  EXPECT_EQ(left_behind([] { return std::make_unique<Ours>(false); }), 0);
  EXPECT_EQ(left_behind([] { return std::make_unique<Ours>(true); }), 2 * kMiB);
  EXPECT_EQ(left_behind([] { return std::make_unique<Ours>(true, false); }), 2 * kMiB);
  EXPECT_EQ(left_behind([] { return std::make_unique<Ours>(8U); }), 0);
  EXPECT_EQ(left_behind([] { return std::make_unique<Ours>(8, 3, 7); }), 0);
  EXPECT_EQ(left_behind([] { return std::make_unique<Ours>(8, 3, 7, 4 * kMiB, true); }), 2 * kMiB);
}

TEST(CachingDeviceAllocator, TellsWhatItKeeps) {
  gapless::CachingDeviceAllocator allocator;
  EXPECT_EQ(allocator.cached_bytes[0].live, 0);
  void* a = nullptr;
  void* b = nullptr;
  ASSERT_EQ(allocator.DeviceAllocate(&a, 10 * kMiB), cudaSuccess);
  ASSERT_EQ(allocator.DeviceAllocate(&b, 4 * kMiB), cudaSuccess);
  ASSERT_EQ(allocator.DeviceFree(b), cudaSuccess);
  EXPECT_EQ(allocator.cached_bytes[0].live, 10 * kMiB);
  EXPECT_EQ(allocator.cached_bytes[0].free, 4 * kMiB);
  EXPECT_EQ(allocator.cached_bytes.at(0).free, 4 * kMiB);
  EXPECT_EQ(allocator.cached_bytes[7].free, 0);  // no such device
  ASSERT_EQ(allocator.DeviceFree(a), cudaSuccess);
  ASSERT_EQ(allocator.FreeAllCached(), cudaSuccess);
  EXPECT_EQ(allocator.cached_bytes[0].free, 0);
}

TEST(CachingDeviceAllocator, DoesWhatCubsDoes) {
  gapless::CachingDeviceAllocator allocator(8, 3, 7, 4 * kMiB);
  void* a = nullptr;
  void* b = nullptr;
  ASSERT_EQ(allocator.DeviceAllocate(&a, 10 * kMiB), cudaSuccess);
  ASSERT_EQ(allocator.DeviceAllocate(0, &b, 10 * kMiB, nullptr), cudaSuccess);
  std::size_t before = 0;
  std::size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  EXPECT_EQ(allocator.DeviceFree(a), cudaSuccess);
  std::size_t after = 0;
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(after, before + 6 * kMiB);  // 4 MiB may stay
  EXPECT_EQ(allocator.DeviceFree(0, b), cudaSuccess);
  EXPECT_EQ(allocator.FreeAllCached(), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(after, before + 20 * kMiB);
  EXPECT_EQ(allocator.DeviceFree(b), cudaErrorInvalidValue);
  EXPECT_EQ(allocator.DeviceAllocate(&a, std::size_t{1} << 50), cudaErrorMemoryAllocation);
  EXPECT_EQ(a, nullptr);
}

}  // namespace
