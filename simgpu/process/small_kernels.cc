#include "simgpu/process/small_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <cxxabi.h>

#include "simgpu/process/device_memory.h"

namespace gapless::simgpu {
namespace {

using Action = SmallKernel::Action;
using Form = SmallKernel::Form;
using Shape = SmallKernel::Shape;
using Bytes = std::vector<unsigned char>;

constexpr std::uint64_t kMostNumbers = 4096;

NumberType type_named(const std::string& name) {
  struct Known {
    const char* name;
    NumberType type;
  };
  static constexpr Known known[] = {
      {"bool", NumberType::boolean},   {"unsigned char", NumberType::u8},
      {"signed char", NumberType::i8}, {"short", NumberType::i16},
      {"int", NumberType::i32},        {"long", NumberType::i64},
      {"float", NumberType::f32},      {"double", NumberType::f64},
      {"c10::Half", NumberType::f16},  {"c10::BFloat16", NumberType::bf16}};
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
    kernel = {Shape::elementwise, Form::tensors, Action::convert, none, none, 1};
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

// --- running -------------------------------------------------------------------------------------

template <class T>
T read_at(const void* base, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

// The bytes at a device address: zeros where nobody wrote. Nothing where there is no memory.
std::optional<Bytes> read_bytes(const DeviceMemory& memory, DeviceAddress address,
                                std::uint64_t bytes) {
  Bytes found(bytes);
  if (!memory.read(found.data(), address, bytes)) return {};
  return found;
}

bool is_zero(const Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == 0; });
}

// Zeros need not be kept.
void write_bytes(DeviceMemory& memory, DeviceAddress address, const Bytes& bytes) {
  if (is_zero(bytes)) {
    memory.forget(address, bytes.size());
  } else {
    memory.write(address, bytes.data(), bytes.size());
  }
}

bool compare(int operation, auto a, auto b) {
  switch (operation) {  // OpType
    case 0:
      return a >= b;
    case 1:
      return a > b;
    case 2:
      return a <= b;
    default:
      return a < b;
  }
}

// The number behind the functor's own members: after `before` bytes, aligned as its type wants.
template <class C>
C scalar_behind(const void* functor, std::size_t before, NumberType type) {
  C found{};
  with_type(type, [&](auto element) {
    using S = decltype(element);
    const std::size_t at = (before + alignof(S) - 1) / alignof(S) * alignof(S);
    found = static_cast<C>(load_number<S>(static_cast<const char*>(functor) + at, 0));
  });
  return found;
}

template <class T>
void compute(const SmallKernel& kernel, const void* functor, std::size_t count,
             const std::vector<Bytes>& inputs, Bytes& output) {
  using C = Computed<T>;
  // Comparisons keep their operation first; sums a scalar and alpha; products are empty.
  const bool compares = kernel.action == Action::compare || kernel.action == Action::equal;
  const bool scalar = kernel.form != Form::tensors;
  const int operation = compares ? read_at<int>(functor, 0) : 0;
  C constant{};
  C alpha{1};
  if (kernel.action == Action::fill) constant = load_number<T>(functor, 0);
  if (kernel.action == Action::add) {
    alpha = read_at<C>(functor, scalar ? sizeof(C) : 0);
    if (scalar) constant = read_at<C>(functor, 0);
  } else if (scalar) {
    constant = scalar_behind<C>(functor, compares ? sizeof(int) : 1, kernel.scalar);
  }
  for (std::size_t i = 0; i < count; ++i) {
    C a = constant;
    C b = constant;
    std::size_t next = 0;
    if (kernel.operands != 0 && kernel.form != Form::scalar_first) {
      a = load_number<T>(inputs[next++].data(), i);
    }
    if (next < inputs.size()) b = load_number<T>(inputs[next].data(), i);
    switch (kernel.action) {
      case Action::fill:
        store_number<T>(output.data(), i, constant);
        break;
      case Action::compare:
        store_number<bool>(output.data(), i, compare(operation, a, b));
        break;
      case Action::equal:
        store_number<bool>(output.data(), i, (a == b) == (operation == 0));
        break;
      case Action::add:
        store_number<T>(output.data(), i, a + alpha * b);
        break;
      case Action::multiply:
        store_number<T>(output.data(), i, a * b);
        break;
      case Action::absolute:
        store_number<T>(output.data(), i, a < C{} ? static_cast<C>(-a) : a);
        break;
      case Action::invert:
        store_number<bool>(output.data(), i, a == C{});
        break;
      default:
        if constexpr (std::is_integral_v<C>) {
          store_number<T>(output.data(), i, kernel.action == Action::both ? a & b : a | b);
        }
    }
  }
}

// c10::ScalarType.
NumberType scalar_type(int number) {
  switch (number) {
    case 0:
      return NumberType::u8;
    case 1:
      return NumberType::i8;
    case 2:
      return NumberType::i16;
    case 3:
      return NumberType::i32;
    case 4:
      return NumberType::i64;
    case 5:
      return NumberType::f16;
    case 6:
      return NumberType::f32;
    case 7:
      return NumberType::f64;
    case 11:
      return NumberType::boolean;
    case 15:
      return NumberType::bf16;
    default:
      return NumberType::none;
  }
}

// The same numbers in another type.
Bytes converted(const Bytes& input, NumberType from, NumberType to, std::size_t count) {
  if (from == to) return input;
  Bytes output(count * bytes_of(to));
  with_type(from, [&](auto source) {
    with_type(to, [&](auto target) {
      for (std::size_t i = 0; i < count; ++i) {
        store_number<decltype(target)>(output.data(), i,
                                       load_number<decltype(source)>(input.data(), i));
      }
    });
  });
  return output;
}

// The type of a tensor: the functor's, or what LoadWithCast {types, sizes} and StoreWithCast {type,
// size} say.
NumberType tensor_type(const SmallKernel& kernel, void** arguments, int input) {
  if (!kernel.casts) return input < 0 ? kernel.result : kernel.type;
  return scalar_type(input < 0
                         ? read_at<std::int8_t>(arguments[6], 0)
                         : read_at<std::int8_t>(arguments[5], static_cast<std::size_t>(input)));
}

void run_elementwise(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  const int count = *static_cast<const int*>(arguments[0]);
  if (count <= 0 || static_cast<std::uint64_t>(count) > kMostNumbers) return;
  const auto numbers = static_cast<std::size_t>(count);
  const auto address = [&](int place) {  // the output, then the inputs
    return read_at<std::uint64_t>(arguments[2], 8 * static_cast<std::size_t>(place));
  };
  const bool copies = kernel.action == Action::convert;
  const NumberType target = tensor_type(kernel, arguments, -1);
  if (target == NumberType::none) return;
  std::vector<Bytes> inputs;
  for (int i = 0; i < kernel.operands; ++i) {
    const NumberType type = tensor_type(kernel, arguments, i);
    auto input = read_bytes(memory, address(i + 1), numbers * bytes_of(type));
    if (!input || type == NumberType::none) return;
    inputs.push_back(converted(*input, type, copies ? target : kernel.type, numbers));
  }
  if (copies) {
    write_bytes(memory, address(0), inputs[0]);
    return;
  }
  Bytes output(numbers * bytes_of(kernel.result));
  // Two tensors of zeros are mostly such as nobody computed: then neither a >= b nor
  // a <= b is true. What a program does when it finds one to be is mostly to complain.
  const bool orders = kernel.action == Action::compare && kernel.operands == 2;
  if (!orders || !std::all_of(inputs.begin(), inputs.end(), is_zero)) {
    with_type(kernel.type, [&](auto element) {
      compute<decltype(element)>(kernel, arguments[1], numbers, inputs, output);
    });
  }
  write_bytes(memory, address(0), converted(output, kernel.result, target, numbers));
}

template <class From, class To>
void reduce(Action action, const Bytes& input, std::size_t count, Bytes& output) {
  using C = Computed<To>;
  auto result = static_cast<C>(load_number<From>(input.data(), 0));
  for (std::size_t i = 1; i < count; ++i) {
    const auto next = static_cast<C>(load_number<From>(input.data(), i));
    switch (action) {
      case Action::maximum:
        result = std::max(result, next);
        break;
      case Action::minimum:
        result = std::min(result, next);
        break;
      case Action::all:
        result = static_cast<C>(result != C{} && next != C{});
        break;
      case Action::any:
        result = static_cast<C>(result != C{} || next != C{});
        break;
      default:
        result = static_cast<C>(result + next);
    }
  }
  if (action == Action::mean) result = static_cast<C>(result / static_cast<C>(count));
  store_number<To>(output.data(), 0, result);
}

// ReduceOp: the operation and the identity (in the type summed in), ReduceConfig {element bytes,
// inputs, outputs, ...}, two offset calculators, source, target. Only where all is reduced to one.
void run_reduction(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  constexpr std::size_t kSourceBehindConfig = 972;
  const void* operation = arguments[0];
  std::size_t summed = 0;
  with_type(kernel.result, [&](auto element) { summed = sizeof(Computed<decltype(element)>); });
  const std::size_t config = std::max<std::size_t>(4, 2 * summed);
  const auto inputs = read_at<int>(operation, config + 4);
  const auto outputs = read_at<int>(operation, config + 8);
  const std::size_t pointers = (config + kSourceBehindConfig + 7) / 8 * 8;
  const auto source = read_at<std::uint64_t>(operation, pointers);
  const auto target = read_at<std::uint64_t>(operation, pointers + 8);
  if (outputs != 1 || inputs < 1 || static_cast<std::uint64_t>(inputs) > kMostNumbers ||
      !memory.find(source) || !memory.find(target)) {
    return;
  }
  const auto numbers = static_cast<std::size_t>(inputs);
  const auto input = read_bytes(memory, source, numbers * bytes_of(kernel.type));
  if (!input) return;
  Bytes output(bytes_of(kernel.result));
  with_type(kernel.type, [&](auto from) {
    with_type(kernel.result, [&](auto to) {
      reduce<decltype(from), decltype(to)>(kernel.action, *input, numbers, output);
    });
  });
  write_bytes(memory, target, output);
}

}  // namespace

SmallKernel recognise_kernel(const std::string& mangled) {
  SmallKernel kernel;
  const bool casts = has(mangled, "unrolled_elementwise_kernel") && has(mangled, "LoadWithCast") &&
                     has(mangled, "StoreWithCast");
  const bool elementwise = casts || has(mangled, "vectorized_elementwise_kernel");
  const bool reduction = has(mangled, "reduce_kernel") && has(mangled, "ReduceOp");
  if (!elementwise && !reduction) return kernel;
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (text == nullptr) return kernel;
  const std::string name = text;
  std::free(text);
  // The parameters repeat the template's arguments.
  const std::string arguments = name.substr(0, name.find(">("));
  if (elementwise) recognise_elementwise(arguments, kernel);
  if (reduction) recognise_reduction(arguments, kernel);
  kernel.casts = casts;
  const bool untyped = kernel.action == Action::convert && kernel.type == NumberType::none;
  if (untyped && !casts) kernel.shape = Shape::none;
  return kernel;
}

void run_small_kernel(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  switch (kernel.shape) {
    case Shape::none:
      return;
    case Shape::elementwise:
      run_elementwise(kernel, arguments, memory);
      return;
    case Shape::reduction:
      run_reduction(kernel, arguments, memory);
      return;
  }
}

}  // namespace gapless::simgpu
