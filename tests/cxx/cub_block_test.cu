// CUB's block and warp algorithms on the simulated GPU, with blocks of many sizes and every way
// that they have to go about it; and in half precision, with which losses are computed.
#include <algorithm>
#include <numeric>

#include <cub/block/block_histogram.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include "tests/cxx/on_device.h"

namespace {

template <class T, int kThreads, cub::BlockReduceAlgorithm kHow>
__global__ void reduce(const T* in, int count, T* sum) {
  using Reduce = cub::BlockReduce<T, kThreads, kHow>;
  __shared__ typename Reduce::TempStorage storage;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int valid = min(kThreads, count - static_cast<int>(blockIdx.x) * kThreads);
  const T total = Reduce(storage).Sum(i < count ? in[i] : T{}, valid);
  if (threadIdx.x == 0) sum[blockIdx.x] = total;
}

template <class T, int kThreads, cub::BlockReduceAlgorithm kHow>
void try_reduce() {
  for (const int count : {1, kThreads - 1, kThreads, 3 * kThreads + 7}) {
    const std::vector<T> in = numbers<T>(static_cast<std::size_t>(count), 3);
    const int blocks = (count + kThreads - 1) / kThreads;
    const OnDevice<T> given(in), sums(static_cast<std::size_t>(blocks));
    reduce<T, kThreads, kHow><<<blocks, kThreads>>>(given.data(), count, sums.data());
    check(cudaDeviceSynchronize());
    for (int block = 0; block < blocks; ++block) {
      const auto from = in.begin() + block * kThreads;
      const auto to = in.begin() + std::min(count, (block + 1) * kThreads);
      EXPECT_EQ(sums.values()[static_cast<std::size_t>(block)], std::accumulate(from, to, T{}))
          << kThreads << " threads, " << count << " numbers";
    }
  }
}

TEST(CubBlock, ReducesInEveryWay) {
  try_reduce<int, 32, cub::BLOCK_REDUCE_RAKING>();
  try_reduce<int, 96, cub::BLOCK_REDUCE_RAKING>();
  try_reduce<int, 100, cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>();
  try_reduce<int, 256, cub::BLOCK_REDUCE_WARP_REDUCTIONS>();
  try_reduce<float, 128, cub::BLOCK_REDUCE_WARP_REDUCTIONS>();
  try_reduce<float, 1024, cub::BLOCK_REDUCE_WARP_REDUCTIONS>();
  try_reduce<double, 160, cub::BLOCK_REDUCE_RAKING>();
  try_reduce<long long, 64, cub::BLOCK_REDUCE_WARP_REDUCTIONS>();
}

template <int kThreads, int kItems, cub::BlockScanAlgorithm kHow>
__global__ void scan(const int* in, int* out) {
  using Scan = cub::BlockScan<int, kThreads, kHow>;
  __shared__ typename Scan::TempStorage storage;
  int items[kItems];
  for (int i = 0; i < kItems; ++i) items[i] = in[threadIdx.x * kItems + i];
  Scan(storage).InclusiveSum(items, items);
  for (int i = 0; i < kItems; ++i) out[threadIdx.x * kItems + i] = items[i];
}

template <int kThreads, int kItems, cub::BlockScanAlgorithm kHow>
void try_scan() {
  const std::vector<int> in = numbers<int>(kThreads * kItems);
  const OnDevice<int> given(in), found(in.size());
  scan<kThreads, kItems, kHow><<<1, kThreads>>>(given.data(), found.data());
  std::vector<int> expected(in.size());
  std::partial_sum(in.begin(), in.end(), expected.begin());
  EXPECT_EQ(found.values(), expected) << kThreads << " threads";
}

TEST(CubBlock, ScansInEveryWay) {
  try_scan<32, 1, cub::BLOCK_SCAN_RAKING>();
  try_scan<128, 3, cub::BLOCK_SCAN_RAKING_MEMOIZE>();
  try_scan<256, 4, cub::BLOCK_SCAN_WARP_SCANS>();
  try_scan<96, 7, cub::BLOCK_SCAN_RAKING>();
}

template <class T, int kThreads, int kItems>
__global__ void sort(const T* in, T* out) {
  using Sort = cub::BlockRadixSort<T, kThreads, kItems>;
  __shared__ typename Sort::TempStorage storage;
  T items[kItems];
  for (int i = 0; i < kItems; ++i) items[i] = in[threadIdx.x * kItems + i];
  Sort(storage).SortDescending(items);
  for (int i = 0; i < kItems; ++i) out[threadIdx.x * kItems + i] = items[i];
}

template <class T, int kThreads, int kItems>
void try_sort() {
  std::vector<T> in = numbers<T>(kThreads * kItems);
  const OnDevice<T> given(in), found(in.size());
  sort<T, kThreads, kItems><<<1, kThreads>>>(given.data(), found.data());
  std::sort(in.rbegin(), in.rend());
  EXPECT_EQ(found.values(), in) << kThreads << " threads";
}

TEST(CubBlock, Sorts) {
  try_sort<unsigned, 64, 4>();
  try_sort<float, 128, 3>();
  try_sort<short, 96, 5>();
}

template <int kThreads, cub::BlockHistogramAlgorithm kHow>
__global__ void count(const unsigned char* in, int* bins) {
  using Histogram = cub::BlockHistogram<unsigned char, kThreads, 2, 16, kHow>;
  __shared__ typename Histogram::TempStorage storage;
  __shared__ int counted[16];
  unsigned char items[2] = {in[threadIdx.x * 2], in[threadIdx.x * 2 + 1]};
  Histogram(storage).Histogram(items, counted);
  __syncthreads();
  if (threadIdx.x < 16) bins[threadIdx.x] = counted[threadIdx.x];
}

template <int kThreads, cub::BlockHistogramAlgorithm kHow>
void try_count() {
  const std::vector<unsigned char> in = numbers<unsigned char>(kThreads * 2, 15);
  const OnDevice<unsigned char> given(in);
  const OnDevice<int> bins(16);
  count<kThreads, kHow><<<1, kThreads>>>(given.data(), bins.data());
  std::vector<int> expected(16);
  for (const unsigned char value : in) ++expected[value];
  EXPECT_EQ(bins.values(), expected) << kThreads << " threads";
}

TEST(CubBlock, CountsInBothWays) {
  try_count<64, cub::BLOCK_HISTO_ATOMIC>();
  try_count<256, cub::BLOCK_HISTO_SORT>();
}

// The largest, and the sum of exponentials under it, as a softmax needs them.
template <class Half>
__global__ void soften(const Half* in, int count, float* out) {
  using Reduce = cub::WarpReduce<float>;
  __shared__ typename Reduce::TempStorage storage;
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < count; i += 32) largest = fmaxf(largest, static_cast<float>(in[i]));
  largest = __shfl_sync(~0U, Reduce(storage).Reduce(largest, cuda::maximum<>{}), 0);
  __syncwarp();
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += 32) sum += __expf(static_cast<float>(in[i]) - largest);
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) *out = largest + __logf(sum);
}

template <class Half>
class InHalfPrecision : public ::testing::Test {};
using Halves = ::testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(InHalfPrecision, Halves);

TYPED_TEST(InHalfPrecision, Reduces) {
  for (const int count : {1, 31, 777}) {
    std::vector<TypeParam> in;
    double sum = 0;
    for (const int value : numbers<int>(static_cast<std::size_t>(count), 8)) {
      in.push_back(static_cast<TypeParam>(static_cast<float>(value) / 4));
      sum += std::exp(static_cast<double>(value) / 4);
    }
    const OnDevice<TypeParam> given(in);
    const OnDevice<float> found(1);
    soften<<<1, 32>>>(given.data(), count, found.data());
    EXPECT_NEAR(found.values()[0], std::log(sum), 1e-5) << count;
  }
}

}  // namespace
