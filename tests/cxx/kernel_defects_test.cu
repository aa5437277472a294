// What is wrong with a kernel is told when a program launches it on the simulated GPU, and a bad
// access fails the launch. What is right is not complained of.
#include <string>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cxx/on_device.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Ran {
  cudaError_t error;
  std::string told;
};
// As on a GPU, what fails once fails until the device is reset.
template <class Launch>
Ran run(Launch launch) {
  testing::internal::CaptureStderr();
  launch();
  const cudaError_t error = cudaDeviceSynchronize();
  EXPECT_EQ(cudaStreamSynchronize(nullptr), error);
  (void)cudaDeviceReset();
  return {error, testing::internal::GetCapturedStderr()};
}

// Each warp's sum, added up by the first thread: after a barrier, or without.
template <bool kWaits>
__global__ void sum(const int* in, int* out) {
  __shared__ int sums[4];
  int value = in[threadIdx.x];
  for (int by = 16; by != 0; by /= 2) value += __shfl_down_sync(~0U, value, by);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  if (kWaits) __syncthreads();
  if (threadIdx.x == 0) *out = sums[0] + sums[1] + sums[2] + sums[3];
}

TEST(KernelDefect, ABarrierThatIsMissing) {
  const OnDevice<int> in(std::vector<int>(128, 3)), out(1);
  Ran ran = run([&] { sum<true><<<1, 128>>>(in.data(), out.data()); });
  EXPECT_EQ(ran.error, cudaSuccess);
  EXPECT_EQ(ran.told, "");
  EXPECT_EQ(out.values()[0], 384);

  ran = run([&] { sum<false><<<1, 128>>>(in.data(), out.data()); });
  EXPECT_EQ(ran.error, cudaSuccess);
  EXPECT_THAT(ran.told, AllOf(HasSubstr("race in"), HasSubstr("sum"), HasSubstr(".shared"),
                              HasSubstr("which thread 0 read, with no barrier between")));
}

__global__ void double_all(int* values, int count, int shift) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= count) values[i + shift] *= 2;  // one too many
}

TEST(KernelDefect, AnIndexOneTooFar) {
  const OnDevice<int> values(std::vector<int>(512, 1));  // which end where their memory ends
  Ran ran = run([&] { double_all<<<2, 256>>>(values.data(), 511, 0); });
  EXPECT_EQ(ran.error, cudaSuccess);
  EXPECT_EQ(ran.told, "");
  EXPECT_EQ(values.values()[511], 2);

  ran = run([&] { double_all<<<3, 256>>>(values.data(), 512, 0); });
  EXPECT_EQ(ran.error, cudaErrorIllegalAddress);
  EXPECT_THAT(ran.told, AllOf(HasSubstr("double_all"), HasSubstr("ld.global"),
                              HasSubstr("block (2,0,0), thread (0,0,0)")));
}

__global__ void as_words(const char* bytes, int* out) {
  *out = *reinterpret_cast<const int*>(bytes + threadIdx.x);
}

TEST(KernelDefect, AWordThatIsNotAligned) {
  const OnDevice<char> bytes(std::vector<char>(64, 1));
  const OnDevice<int> out(1);
  const Ran ran = run([&] { as_words<<<1, 2>>>(bytes.data(), out.data()); });
  EXPECT_EQ(ran.error, cudaErrorMisalignedAddress);
  EXPECT_THAT(ran.told, AllOf(HasSubstr("as_words"), HasSubstr("thread (1,0,0)")));
}

__global__ void wait_in_part(int* out) {
  if (threadIdx.x < 40) __syncthreads();
  out[threadIdx.x] = 1;
}

TEST(KernelDefect, ABarrierThatNotAllReach) {
  const OnDevice<int> out(96);
  const Ran ran = run([&] { wait_in_part<<<1, 96>>>(out.data()); });
  EXPECT_THAT(ran.told, AllOf(HasSubstr("barrier"), HasSubstr("wait_in_part")));
}

__global__ void refuse(const int* in) {
  if (in[threadIdx.x] == 7) __trap();
}

TEST(KernelDefect, AnAssertion) {
  std::vector<int> values(32, 1);
  const OnDevice<int> fine(values);
  values[9] = 7;
  const OnDevice<int> wrong(values);
  EXPECT_EQ(run([&] { refuse<<<1, 32>>>(fine.data()); }).error, cudaSuccess);
  const Ran ran = run([&] { refuse<<<1, 32>>>(wrong.data()); });
  EXPECT_NE(ran.error, cudaSuccess);
  EXPECT_THAT(ran.told, AllOf(HasSubstr("refuse"), HasSubstr("thread (9,0,0)")));
}

}  // namespace
