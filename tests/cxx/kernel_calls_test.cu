// Functions that the compiler did not put in place of their calls: arguments and results of any
// kind, functions that call others, calls that only some threads make, and what the compiler brings
// itself (pow, the slow path of sin).
#include <cmath>

#include <gtest/gtest.h>

#include "tests/cxx/on_device.h"

namespace {

struct Pair {
  double a;
  int b[3];
};

#define BOTH __host__ __device__ __noinline__
BOTH float polynomial(float x, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum = sum * x + static_cast<float>(i);
  return sum;
}
BOTH Pair twist(Pair pair, const int* by) {
  for (int i = 0; i < 3; ++i) pair.b[i] += by[i];
  pair.a = sin(1e6 * pair.a) + pow(pair.a, 1.7);
  return pair;
}
BOTH int twice(int x) {
  if (x % 3 == 0) return x;
  return 2 * x + static_cast<int>(polynomial(static_cast<float>(x), 2));
}
BOTH void fill(int* places, int count, int value) {
  for (int i = 0; i < count; ++i) places[i] = value + i;
}

__global__ void call_all(const int* by, float* floats, double* doubles, int* numbers) {
  const int i = threadIdx.x;
  floats[i] = polynomial(0.5F * i, i % 5);
  int mine[4] = {};
  if (i % 2 == 0) fill(mine, 4, i);
  numbers[i] = twice(i) + mine[0] + mine[3];
  const Pair made = twist(Pair{i + 0.25, {i, 2 * i, 3 * i}}, by);
  doubles[i] = made.a + made.b[0] + made.b[1] + made.b[2];
}

TEST(KernelCall, OfFunctionsThatWereNotInlined) {
  const std::vector<int> by{5, 6, 7};
  const OnDevice<int> given(by), numbers(64);
  const OnDevice<float> floats(64);
  const OnDevice<double> doubles(64);
  call_all<<<1, 64>>>(given.data(), floats.data(), doubles.data(), numbers.data());
  check(cudaDeviceSynchronize());
  for (int i = 0; i < 64; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(floats.values()[at], polynomial(0.5F * static_cast<float>(i), i % 5)) << i;
    EXPECT_EQ(numbers.values()[at], twice(i) + (i % 2 == 0 ? 2 * i + 3 : 0)) << i;
    const Pair made = twist(Pair{i + 0.25, {i, 2 * i, 3 * i}}, by.data());
    EXPECT_NEAR(doubles.values()[at], made.a + made.b[0] + made.b[1] + made.b[2], 1e-9) << i;
  }
}

}  // namespace
