// PyTorch's simplest kernels, by their names. That torch's own are recognised, tests/torch shows.
#include "simgpu/process/small_kernels.h"

#include <array>
#include <cstddef>
#include <cstring>

#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "simgpu/process/device_memory.h"
#include "simgpu/process/selections.h"

namespace gapless::simgpu {
namespace {

// at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*,
// 1>>
constexpr const char* kFill =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_"
    "T1_";
// ... <2, at::native::CUDAFunctor_add<long>, std::array<char*, 3>>
constexpr const char* kAdd =
    "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_15CUDAFunctor_"
    "addIlEESt5arrayIPcLm3EEEEviT0_T1_";

// ... <4, at::native::BinaryFunctor<float, float, bool, CompareFunctor<float>>, std::array<char*,
// 3>>
constexpr const char* kCompare =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIffbNS0_12_GLOBAL__N_"
    "114CompareFunctorIfEEEESt5arrayIPcLm3EEEEviT0_T1_";

// ... elementwise_kernel<128, 2, gpu_kernel_impl_nocast<CUDAFunctor_add<long>>(TensorIteratorBase&,
// CUDAFunctor_add<long> const&)::{lambda(int)#1}>
constexpr const char* kStridedAdd =
    "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_"
    "addIlEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";

// What it gets: a table of rows times columns, and where the numbers lie.
struct StridedArguments {
  std::uint32_t dimensions = 2;
  std::uint32_t divisors[25][3] = {};
  std::uint32_t strides[25][3] = {};
  alignas(8) DeviceAddress data[3] = {};
  std::int64_t alpha = 1;
};
static_assert(offsetof(StridedArguments, data) == 608);

class SmallKernels : public ::testing::Test {
 protected:
  SmallKernels() : memory_(Config{{gpu()}, {gpu()}, {0}, ""}) {
    EXPECT_EQ(memory_.alloc(0, 4096, base_), DriverStatus::ok);
  }
  static GpuProfile gpu() { return parse_gpus("1GiB")[0]; }

  template <class T, std::size_t N>
  std::array<T, N> read(DeviceAddress address) {
    std::array<T, N> found{};
    EXPECT_TRUE(memory_.read(found.data(), address, sizeof found));
    return found;
  }

  DeviceMemory memory_;
  DeviceAddress base_ = 0;
};

TEST_F(SmallKernels, FillAndAdd) {
  const SmallKernel fill = recognise_kernel(kFill);
  ASSERT_EQ(fill.shape, SmallKernel::Shape::elementwise);
  EXPECT_EQ(fill.type, NumberType::f32);
  int count = 3;
  float value = 2.5F;
  DeviceAddress output[] = {base_};
  void* filling[] = {&count, &value, output};
  run_small_kernel(fill, filling, memory_);
  EXPECT_EQ((read<float, 4>(base_)), (std::array<float, 4>{2.5F, 2.5F, 2.5F, 0}));

  const SmallKernel add = recognise_kernel(kAdd);
  EXPECT_EQ(add.operands, 2);
  const std::int64_t numbers[] = {5, -7};
  ASSERT_TRUE(memory_.write(base_ + 1024, numbers, sizeof numbers));
  count = 2;
  std::int64_t alpha = 3;
  DeviceAddress data[] = {base_ + 512, base_ + 1024,
                          base_ + 2048};  // what was never written: zeros
  void* adding[] = {&count, &alpha, data};
  run_small_kernel(add, adding, memory_);
  EXPECT_EQ((read<std::int64_t, 2>(base_ + 512)), (std::array<std::int64_t, 2>{5, -7}));
  data[2] = base_ + 1024;
  run_small_kernel(add, adding, memory_);
  EXPECT_EQ((read<std::int64_t, 2>(base_ + 512)), (std::array<std::int64_t, 2>{20, -28}));
}

TEST_F(SmallKernels, NoOrderAmongNumbersThatNobodyComputed) {
  const SmallKernel compare = recognise_kernel(kCompare);
  ASSERT_EQ(compare.action, SmallKernel::Action::compare);
  ASSERT_EQ(compare.operands, 2);
  int count = 2;
  int less_or_equal = 2;
  DeviceAddress data[] = {base_, base_ + 512, base_ + 1024};
  void* comparing[] = {&count, &less_or_equal, data};
  run_small_kernel(compare, comparing, memory_);
  EXPECT_EQ((read<bool, 2>(base_)), (std::array<bool, 2>{false, false}));
  const float numbers[] = {0, -1};
  ASSERT_TRUE(memory_.write(base_ + 1024, numbers, sizeof numbers));
  run_small_kernel(compare, comparing, memory_);
  EXPECT_EQ((read<bool, 2>(base_)), (std::array<bool, 2>{true, false}));
}

TEST_F(SmallKernels, TakesNumbersFromWhereTheyLie) {
  const SmallKernel add = recognise_kernel(kStridedAdd);
  ASSERT_TRUE(add.strided);
  ASSERT_EQ(add.operands, 2);
  // Of a table of 2 x 2, the first column to both: into every second of four numbers.
  const std::int64_t table[] = {1, 2, 30, 40};
  ASSERT_TRUE(memory_.write(base_, table, sizeof table));
  const std::int64_t between[] = {0, 7, 0, 8, 0, 9, 0, 10};
  ASSERT_TRUE(memory_.write(base_ + 512, between, sizeof between));
  StridedArguments closure;
  for (int i = 0; i < 2; ++i) closure.divisors[i][0] = 2;
  constexpr std::uint32_t strides[2][3] = {{16, 8, 0}, {32, 16, 16}};
  for (int i = 0; i < 2; ++i) {
    for (int tensor = 0; tensor < 3; ++tensor) closure.strides[i][tensor] = strides[i][tensor];
  }
  closure.data[0] = base_ + 512;
  closure.data[1] = closure.data[2] = base_;
  int count = 4;
  void* arguments[] = {&count, &closure};
  run_small_kernel(add, arguments, memory_);
  const std::array<std::int64_t, 8> sums{2, 7, 3, 8, 60, 9, 70, 10};
  EXPECT_EQ((read<std::int64_t, 8>(base_ + 512)), sums);

  // What can be no such table is left alone: more dimensions, other sizes, memory far away.
  count = 3;
  run_small_kernel(add, arguments, memory_);
  count = 4;
  closure.divisors[0][0] = 0;
  run_small_kernel(add, arguments, memory_);
  closure.divisors[0][0] = 2;
  closure.dimensions = 26;
  run_small_kernel(add, arguments, memory_);
  closure.dimensions = 2;
  closure.strides[1][1] = UINT32_MAX - 64;
  run_small_kernel(add, arguments, memory_);
  closure.strides[1][1] = 16;
  closure.data[2] = base_ + 4096 * 4096;
  run_small_kernel(add, arguments, memory_);
  EXPECT_EQ((read<std::int64_t, 8>(base_ + 512)), sums);
}

TEST_F(SmallKernels, LeaveAloneWhatIsLargeOrNoMemory) {
  const SmallKernel fill = recognise_kernel(kFill);
  int count = 1 << 20;
  float value = 1;
  DeviceAddress output[] = {base_};
  void* arguments[] = {&count, &value, output};
  run_small_kernel(fill, arguments, memory_);
  count = 0;
  run_small_kernel(fill, arguments, memory_);
  EXPECT_EQ((read<float, 1>(base_))[0], 0.0F);
  count = 1;
  output[0] = 12345;
  run_small_kernel(fill, arguments, memory_);  // nothing to write to
}

TEST(SmallKernelNames, OthersAreNotTaken) {
  for (const char* name :
       {"", "spin_kernel", "_ZN2at6native13reduce_kernelEv", "reduce_kernel ReduceOp",
        "vectorized_elementwise_kernel", "_Z29vectorized_elementwise_kernelv"}) {
    EXPECT_EQ(recognise_kernel(name).shape, SmallKernel::Shape::none) << name;
  }
}

TEST(Numbers, NarrowTypesGoThereAndBack) {
  for (const float value : {0.0F, 1.0F, -2.5F, 65504.0F, 6.1035156e-05F, 5.9604645e-08F}) {
    EXPECT_EQ(static_cast<float>(Half::from(value)), value);
  }
  EXPECT_EQ(static_cast<float>(Half::from(1e6F)), HUGE_VALF);
  EXPECT_TRUE(std::isnan(static_cast<float>(Half::from(NAN))));
  EXPECT_EQ(static_cast<float>(Bfloat::from(-3.0F)), -3.0F);
}

// What CUB's kernels are named after, shortened: torch 2.11's namespaces.
TEST_F(SmallKernels, Selections) {
  const std::string iterator =
      "thrust::transform_iterator<at::native::(anonymous namespace)::NonZeroOp<bool>, bool const*>";
  const std::string cub = "void at_cuda_detail::cub::detail::";
  const SmallKernel count =
      recognise_selection(cub + "reduce::DeviceReduceSingleTileKernel<" + iterator + ", int*>");
  const SmallKernel blocks =
      recognise_selection(cub + "reduce::DeviceReduceKernel<" + iterator + ", int*>");
  const SmallKernel add =
      recognise_selection(cub +
                          "reduce::DeviceReduceSingleTileKernel<int*, int*, int, "
                          "cuda::std::plus<void>, int, int>(int*, int*, int, "
                          "cuda::std::plus<void>, int)");
  const SmallKernel positions =
      recognise_selection(cub + "select::DeviceSelectSweepKernel<" + iterator + ", long*>");
  const SmallKernel indices =
      recognise_selection("void at::native::write_indices<long>(long*, TensorDims<long>, int)");
  for (const SmallKernel& kernel : {count, blocks, add, positions, indices}) {
    ASSERT_EQ(kernel.shape, SmallKernel::Shape::selection);
  }
  EXPECT_EQ(recognise_selection(cub + "reduce::DeviceReduceSingleTileKernel<float*, float*>").shape,
            SmallKernel::Shape::none);

  const bool mask[] = {false, true, true, false, false, true};
  ASSERT_TRUE(memory_.write(base_, mask, sizeof mask));
  DeviceAddress flags = base_;
  DeviceAddress sums = base_ + 512;
  std::uint64_t numbers = 6;
  void* counting[] = {&flags, &sums, &numbers};
  EXPECT_TRUE(run_small_kernel(count, counting, memory_));
  EXPECT_EQ((read<int, 1>(sums)), (std::array<int, 1>{3}));

  // In three blocks; what the last user of that memory left there is not counted.
  const int old[] = {7, 7, 7};
  ASSERT_TRUE(memory_.write(sums, old, sizeof old));
  struct Share {
    int tiles[2] = {3, 0};
    std::uint64_t items[3] = {};
    std::uint64_t count = 6;
    int blocks = 3;
  } share;
  void* counting_blocks[] = {&flags, &sums, &numbers, &share};
  EXPECT_TRUE(run_small_kernel(blocks, counting_blocks, memory_));
  DeviceAddress sum = base_ + 1024;
  int block_count = 3;
  void* adding[] = {&sums, &sum, &block_count};
  EXPECT_TRUE(run_small_kernel(add, adding, memory_));
  EXPECT_EQ((read<int, 1>(sum)), (std::array<int, 1>{3}));

  std::int64_t first = 0;
  DeviceAddress output = base_ + 2048;
  int flag_count = 6;
  void* placing[] = {&first, &flags, &output, nullptr, nullptr, nullptr, nullptr, &flag_count};
  EXPECT_TRUE(run_small_kernel(positions, placing, memory_));
  EXPECT_EQ((read<std::int64_t, 3>(output)), (std::array<std::int64_t, 3>{1, 2, 5}));

  std::int64_t sizes[16] = {2, 3};  // rows, columns
  int dimensions = 2;
  std::int64_t found = 3;
  DeviceAddress no_total = 0;
  void* splitting[] = {&output, sizes, &dimensions, &found, &no_total};
  EXPECT_TRUE(run_small_kernel(indices, splitting, memory_));
  EXPECT_EQ((read<std::int64_t, 6>(output)), (std::array<std::int64_t, 6>{0, 0, 1, 1, 2, 2}));

  flags = base_ + 3072;  // where nobody wrote
  EXPECT_FALSE(run_small_kernel(count, counting, memory_));
  numbers = 0;
  EXPECT_TRUE(run_small_kernel(count, counting, memory_));
}

}  // namespace
}  // namespace gapless::simgpu
