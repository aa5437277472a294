// CUB's device-wide algorithms, code that nobody here wrote, on the simulated GPU: their kernels
// run as PTX, their temporary storage comes from gapless, and what they find is what the CPU finds.
#include <algorithm>
#include <memory>
#include <numeric>

#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <gtest/gtest.h>

#include "allocator/cxx/caching_device_allocator.h"
#include "allocator/cxx/memory_resource.h"
#include "tests/cxx/on_device.h"

namespace {

class FromTheCachingAllocator final : public Storage {
 public:
  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(allocator_.DeviceAllocate(&memory, bytes));
    return memory;
  }
  void deallocate(void* memory, std::size_t) override { check(allocator_.DeviceFree(memory)); }

 private:
  gapless::CachingDeviceAllocator allocator_;
};

class FromAResource final : public Storage {
 public:
  FromAResource() {
    if (gapless_create("limit:1GiB", &allocator_) != GAPLESS_OK) {
      throw std::runtime_error(gapless_last_error());
    }
    resource_ = std::make_unique<gapless::memory_resource>(allocator_);
  }
  ~FromAResource() override {
    resource_.reset();
    (void)gapless_destroy(allocator_);
  }
  void* allocate(std::size_t bytes) override {
    return resource_->allocate_async(bytes, cuda::stream_ref{cudaStream_t{}});
  }
  void deallocate(void* memory, std::size_t bytes) override {
    resource_->deallocate_async(memory, bytes, cuda::stream_ref{cudaStream_t{}});
  }

 private:
  gapless_allocator* allocator_ = nullptr;
  std::unique_ptr<gapless::memory_resource> resource_;
};

// One number, less than a warp, a ragged block, ragged tiles, many tiles.
const std::size_t kCounts[] = {1, 31, 33, 1000, 4097, 20011};

template <class T>
class CubOf : public ::testing::Test {
 protected:
  FromTheCachingAllocator storage_;
  FromAResource other_;
};
using Types = ::testing::Types<std::uint8_t, std::int16_t, std::int32_t, float, double>;
TYPED_TEST_SUITE(CubOf, Types);

TYPED_TEST(CubOf, Reduces) {
  using T = TypeParam;
  // A sum of small types is a small type's.
  for (const std::size_t count : kCounts) {
    const std::vector<T> in = numbers<T>(count);
    const OnDevice<T> given(in), sum(1), largest(1);
    in_two_phases(this->storage_, [&](void* temporary, std::size_t& bytes) {
      return cub::DeviceReduce::Sum(temporary, bytes, given.data(), sum.data(), count);
    });
    in_two_phases(this->other_, [&](void* temporary, std::size_t& bytes) {
      return cub::DeviceReduce::Max(temporary, bytes, given.data(), largest.data(), count);
    });
    EXPECT_EQ(sum.values()[0],
              std::accumulate(in.begin(), in.end(), T{}, [](T a, T b) { return T(a + b); }))
        << count;
    EXPECT_EQ(largest.values()[0], *std::max_element(in.begin(), in.end())) << count;
  }
}

TYPED_TEST(CubOf, Scans) {
  using T = TypeParam;
  for (const std::size_t count : kCounts) {
    const std::vector<T> in = numbers<T>(count, 5);
    const OnDevice<T> given(in), inclusive(count), exclusive(count);
    in_two_phases(this->storage_, [&](void* temporary, std::size_t& bytes) {
      return cub::DeviceScan::InclusiveSum(temporary, bytes, given.data(), inclusive.data(), count);
    });
    in_two_phases(this->other_, [&](void* temporary, std::size_t& bytes) {
      return cub::DeviceScan::ExclusiveSum(temporary, bytes, given.data(), exclusive.data(), count);
    });
    std::vector<T> expected(count);
    T sum{};
    for (std::size_t i = 0; i < count; ++i) expected[i] = sum = T(sum + in[i]);
    EXPECT_EQ(inclusive.values(), expected) << count;
    expected.insert(expected.begin(), T{});
    expected.pop_back();
    EXPECT_EQ(exclusive.values(), expected) << count;
  }
}

TYPED_TEST(CubOf, SortsPairs) {
  using T = TypeParam;
  for (const std::size_t count : {1, 33, 1000, 4097}) {
    const std::vector<T> in = numbers<T>(count);
    std::vector<std::int32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    const OnDevice<T> given(in), sorted(count);
    const OnDevice<std::int32_t> places(order), moved(count);
    in_two_phases(this->storage_, [&](void* temporary, std::size_t& bytes) {
      return cub::DeviceRadixSort::SortPairs(temporary, bytes, given.data(), sorted.data(),
                                             places.data(), moved.data(), static_cast<int>(count));
    });
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return in[a] < in[b]; });
    std::vector<T> expected = in;
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(sorted.values(), expected) << count;
    EXPECT_EQ(moved.values(), order) << count;
  }
}

TEST(Cub, CountsSelectsAndEncodes) {
  FromTheCachingAllocator storage;
  for (const std::size_t count : kCounts) {
    const int n = static_cast<int>(count);
    std::vector<std::int32_t> in = numbers<std::int32_t>(count, 8);
    std::vector<std::int32_t> bins(17);
    for (const int value : in) ++bins[static_cast<std::size_t>(value + 8)];
    const OnDevice<std::int32_t> given(in), histogram(17);
    in_two_phases(storage, [&](void* temporary, std::size_t& bytes) {
      return cub::DeviceHistogram::HistogramEven(temporary, bytes, given.data(), histogram.data(),
                                                 18, -8, 9, n);
    });
    EXPECT_EQ(histogram.values(), bins) << count;

    std::vector<std::uint8_t> flags = numbers<std::uint8_t>(count, 1);
    const OnDevice<std::uint8_t> flagged(flags);
    const OnDevice<std::int32_t> selected(count), found(1);
    in_two_phases(storage, [&](void* temporary, std::size_t& bytes) {
      return cub::DeviceSelect::Flagged(temporary, bytes, given.data(), flagged.data(),
                                        selected.data(), found.data(), n);
    });
    std::vector<std::int32_t> expected;
    for (std::size_t i = 0; i < count; ++i) {
      if (flags[i] != 0) expected.push_back(in[i]);
    }
    ASSERT_EQ(found.values()[0], static_cast<int>(expected.size())) << count;
    std::vector<std::int32_t> values = selected.values();
    values.resize(expected.size());
    EXPECT_EQ(values, expected) << count;

    std::sort(in.begin(), in.end());
    const OnDevice<std::int32_t> sorted(in), different(count), lengths(count), runs(1);
    in_two_phases(storage, [&](void* temporary, std::size_t& bytes) {
      return cub::DeviceRunLengthEncode::Encode(temporary, bytes, sorted.data(), different.data(),
                                                lengths.data(), runs.data(), n);
    });
    std::vector<std::int32_t> once = in;
    once.erase(std::unique(once.begin(), once.end()), once.end());
    ASSERT_EQ(runs.values()[0], static_cast<int>(once.size())) << count;
    values = different.values();
    values.resize(once.size());
    EXPECT_EQ(values, once) << count;
    std::vector<std::int32_t> counted = lengths.values();
    counted.resize(once.size());
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(counted[i], std::count(in.begin(), in.end(), once[i])) << count;
    }
  }
}

}  // namespace
