#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include <cxxabi.h>

#include "simgpu/process/selections.h"

namespace gapless::simgpu {
namespace {

using Action = SmallKernel::Action;
using Form = SmallKernel::Form;
using Shape = SmallKernel::Shape;

NumberType type_named(const std::string& name) {
  struct Known {
    const char* name;
    NumberType type;
  };
  static constexpr Known known[] = {
      {"bool", NumberType::boolean},     {"unsigned char", NumberType::u8},
      {"signed char", NumberType::i8},   {"short", NumberType::i16},
      {"int", NumberType::i32},          {"long", NumberType::i64},
      {"unsigned int", NumberType::u32}, {"unsigned long", NumberType::u64},
      {"float", NumberType::f32},        {"double", NumberType::f64},
      {"c10::Half", NumberType::f16},    {"c10::BFloat16", NumberType::bf16}};
  for (const Known& each : known) {
    if (name == each.name) return each.type;
  }
  return NumberType::none;
}

// A template argument after `prefix`, "FillFunctor<": a type of numbers. Those before it are names.
NumberType argument_of(const std::string& name, const std::string& prefix, int place = 0) {
  const std::size_t at = name.find(prefix);
  if (at == std::string::npos) return NumberType::none;
  std::size_t begin = at + prefix.size();
  for (; place > 0; --place) begin = name.find(", ", begin) + 2;
  return type_named(name.substr(begin, name.find_first_of(",>", begin) - begin));
}

// "{lambda(float)#1}": of several, the last.
NumberType argument_of_last_lambda(const std::string& name) {
  const std::string prefix = "{lambda(";
  const std::size_t at = name.rfind(prefix);
  if (at == std::string::npos) return NumberType::none;
  const std::size_t begin = at + prefix.size();
  return type_named(name.substr(begin, name.find(')', begin) - begin));
}

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

void recognise_elementwise(const std::string& name, SmallKernel& kernel) {
  struct Functor {
    const char* prefix;
    Action action;
    Form form;
    int operands;
  };
  static constexpr Functor functors[] = {
      {"FillFunctor<", Action::fill, Form::tensors, 0},
      {"CompareFunctor<", Action::compare, Form::tensors, 2},
      {"compare_scalar_kernel<", Action::compare, Form::scalar_second, 1},
      {"CompareEqFunctor<", Action::equal, Form::tensors, 2},
      {"CUDAFunctor_add<", Action::add, Form::tensors, 2},
      {"CUDAFunctorOnSelf_add<", Action::add, Form::scalar_second, 1},
      {"CUDAFunctorOnOther_add<", Action::add, Form::scalar_first, 1},
      {"MulFunctor<", Action::multiply, Form::tensors, 2},
      {"BitwiseAndFunctor<", Action::both, Form::tensors, 2},
      {"BitwiseOrFunctor<", Action::either, Form::tensors, 2},
      {"AbsFunctor<", Action::absolute, Form::tensors, 1},
  };
  for (const Functor& functor : functors) {
    kernel.type = kernel.scalar = argument_of(name, functor.prefix);
    if (kernel.type == NumberType::none) continue;
    kernel.shape = Shape::elementwise;
    kernel.action = functor.action;
    kernel.form = functor.form;
    kernel.operands = functor.operands;
    // Around a functor of two operands: their types, which it may widen, and what is no tensor.
    for (const char* around : {"AUnaryFunctor<", "BUnaryFunctor<", "BinaryFunctor<"}) {
      if (!has(name, around)) continue;
      kernel.type = argument_of(name, around);
      if (kernel.type != argument_of(name, around, 1)) kernel.shape = Shape::none;
      if (around[1] == 'i') continue;
      kernel.form = around[0] == 'A' ? Form::scalar_first : Form::scalar_second;
      kernel.operands = 1;
    }
    const bool flag = kernel.action == Action::compare || kernel.action == Action::equal;
    kernel.result = flag ? NumberType::boolean : kernel.type;
    return;
  }
  using enum NumberType;
  if (has(name, "bitwise_not_kernel_cuda") && has(name, "{lambda(bool)")) {
    kernel = {Shape::elementwise, Form::tensors, Action::invert, boolean, boolean, 1};
  } else if (has(name, "float16_copy_kernel_cuda") && has(name, "{lambda(float)")) {
    const bool brain = has(name, "bfloat16_copy_kernel_cuda");
    kernel = {Shape::elementwise, Form::tensors, Action::convert, f32, brain ? bf16 : f16, 1};
  } else if (const std::string prefix = "converting_copy_kernel_cuda<"; has(name, prefix.c_str())) {
    kernel = {Shape::elementwise,
              Form::tensors,
              Action::convert,
              argument_of(name, prefix),
              argument_of(name, prefix, 1),
              1};
    if (kernel.type == none || kernel.result == none) kernel.shape = Shape::none;
  } else if (has(name, "direct_copy_kernel_cuda")) {
    // Without casts all types are the functor's.
    const NumberType type = kernel.strided ? argument_of_last_lambda(name) : none;
    kernel = {Shape::elementwise, Form::tensors, Action::convert, type, type, 1};
  } else if (has(name, "where_kernel_impl") && has(name, "{lambda(bool, ")) {
    // Some versions choose among bits: of numbers of that size.
    const bool shorts = has(name, "{lambda(bool, unsigned short");
    const NumberType type = shorts ? i16 : argument_of(name, "{lambda(bool, ");
    kernel = {Shape::elementwise, Form::tensors, Action::select, type, type, 3};
    if (type == none) kernel.shape = Shape::none;
  }
}

void recognise_reduction(const std::string& name, SmallKernel& kernel) {
  kernel.type = argument_of(name, "ReduceOp<");
  kernel.result = kernel.type;
  kernel.operands = 1;
  kernel.shape = kernel.type == NumberType::none ? Shape::none : Shape::reduction;
  const bool flags = kernel.type == NumberType::boolean;
  if (has(name, "sum_functor<")) {
    kernel.action = Action::sum;
    kernel.result = argument_of(name, "sum_functor<", 2);
    if (kernel.result == NumberType::none) kernel.shape = Shape::none;
  } else if (has(name, "MeanOps<")) {
    kernel.action = Action::mean;
  } else if (has(name, "MaxNanFunctor<")) {
    kernel.action = Action::maximum;
  } else if (has(name, "MinNanFunctor<")) {
    kernel.action = Action::minimum;
  } else if (flags && has(name, "and_kernel_cuda")) {
    kernel.action = Action::all;
  } else if (flags && has(name, "or_kernel_cuda")) {
    kernel.action = Action::any;
  } else {
    kernel.shape = Shape::none;
  }
}

// What is in the mangled names of kernels that select.
constexpr const char* kSelections[] = {"NonZeroOp",
                                       "DeviceReduceSingleTileKernel",
                                       "write_indices",
                                       "DeviceSelectSweepKernel",
                                       "8__unique11UniqueAgent",
                                       "compute_cuda_kernel"};

}  // namespace

SmallKernel recognise_selection(const std::string& name) {
  SmallKernel kernel;
  const bool single_tile = has(name, "::DeviceReduceSingleTileKernel<");
  kernel.type = argument_of(name, "NonZeroOp<");
  if (kernel.type != NumberType::none) {
    kernel.shape = Shape::selection;
    if (single_tile) {
      kernel.action = Action::count;
    } else if (has(name, "::DeviceReduceKernel<")) {
      kernel.action = Action::count_blocks;
    } else if (has(name, "::DeviceSelectSweepKernel<")) {
      kernel.action = Action::positions;
    } else {
      kernel.shape = Shape::none;
    }
  } else if (single_tile && has(name, "::plus<") && has(name, ">(int*, int*, int, ")) {
    kernel.shape = Shape::selection;
    kernel.action = Action::add_counts;
  } else if (has(name, "::write_indices<long>(")) {
    kernel.shape = Shape::selection;
    kernel.action = Action::indices;
  } else if (has(name, "::DeviceSelectSweepKernel<") || has(name, "::__unique::UniqueAgent<")) {
    kernel.shape = Shape::selection;
    kernel.action = Action::unique;
  } else if (has(name, "compute_cuda_kernel<long>(")) {
    kernel.shape = Shape::selection;
    kernel.action = Action::repeat;
  }
  return kernel;
}

SmallKernel recognise_kernel(const std::string& mangled) {
  SmallKernel kernel;
  const bool casts = has(mangled, "unrolled_elementwise_kernel") && has(mangled, "LoadWithCast") &&
                     has(mangled, "StoreWithCast");
  const bool strided =
      has(mangled, "18elementwise_kernel") && has(mangled, "gpu_kernel_impl_nocast");
  const bool elementwise = casts || strided || has(mangled, "vectorized_elementwise_kernel");
  const bool reduction = has(mangled, "reduce_kernel") && has(mangled, "ReduceOp");
  const bool selection = std::any_of(std::begin(kSelections), std::end(kSelections),
                                     [&](const char* part) { return has(mangled, part); });
  if (!elementwise && !reduction && !selection) return kernel;
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (text == nullptr) return kernel;
  const std::string name = text;
  std::free(text);
  if (selection) return recognise_selection(name);
  // The parameters repeat the template's arguments.
  const std::string arguments = name.substr(0, name.find(">("));
  kernel.strided = strided;
  if (elementwise) recognise_elementwise(arguments, kernel);
  if (reduction) recognise_reduction(arguments, kernel);
  kernel.casts = casts;
  kernel.strided = strided;
  const bool untyped = kernel.action == Action::convert && kernel.type == NumberType::none;
  if (untyped && !casts) kernel.shape = Shape::none;
  return kernel;
}

}  // namespace gapless::simgpu
