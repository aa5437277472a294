// SmallKernels: PyTorch's simplest kernels on a few numbers, computed for real.
//
//   sizes.max().item(), flag.sum().item(), torch.ones(()).item(), (a > b).item()
//
// Programs steer by such numbers: how long a message is, whether all ranks are ready. Kernels do
// nothing here; these few do, where their inputs are known (the host copied them down, or another
// of these computed them) and small. A kernel is recognised by its C++ name and takes
//
//   vectorized_elementwise_kernel<4, FillFunctor<long>, std::array<char*, 1>>(n, functor, data)
//   unrolled_elementwise_kernel<...>(n, functor, data, calculator, calculator, loader, storer)
//   elementwise_kernel<128, 2, gpu_kernel_impl_nocast<...>::{lambda(int)}>(n, {calculator, data,
//                                                                             functor})
//   reduce_kernel<512, 1, ReduceOp<long, func_wrapper_t<long, sum_functor<...>>, ...>>(operation)
//
// The members' places in functors are those of torch 2.11 to 2.15. What does not look as expected
// is left alone.
#pragma once

#include <string>
#include <vector>

#include "simgpu/process/numbers.h"

namespace gapless::simgpu {

class DeviceMemory;

/// What one kernel does.
struct SmallKernel {
  enum class Shape { none, elementwise, reduction, selection };  // the last: selections.h
  enum class Form { tensors, scalar_first, scalar_second };      // of two operands
  enum class Action {
    fill,
    compare,  // >=, >, <=, <
    equal,    // ==, !=
    add,      // a + alpha * b
    multiply,
    both,    // a & b
    either,  // a | b
    select,  // a flag ? a : b
    absolute,
    invert,   // of a flag
    convert,  // to another type
    sum,
    mean,
    maximum,
    minimum,
    all,
    any,
    count,
    count_blocks,
    add_counts,
    positions,
    indices,
    unique,
    repeat
  };
  Shape shape = Shape::none;
  Form form = Form::tensors;
  Action action = Action::fill;
  NumberType type = NumberType::none;
  NumberType result = NumberType::none;
  int operands = 0;    // tensors read
  bool casts = false;  // tensors may have other types than the functor: arguments 5 and 6 tell
  NumberType scalar = NumberType::none;  // the type of the operand that is no tensor
  bool strided = false;  // the numbers need not lie side by side (strided_numbers.h)
};

/// By the mangled name; Shape::none for all others.
[[nodiscard]] SmallKernel recognise_kernel(const std::string& mangled);

/// False where it selected nothing (selections.h).
bool run_small_kernel(const SmallKernel& kernel, void** arguments, DeviceMemory& memory);

}  // namespace gapless::simgpu
