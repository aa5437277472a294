#include "simgpu/process/small_kernels.h"

#include <algorithm>
#include <optional>

#include "simgpu/process/device_memory.h"
#include "simgpu/process/selections.h"
#include "simgpu/process/strided_numbers.h"

namespace gapless::simgpu {
namespace {

using Action = SmallKernel::Action;
using Form = SmallKernel::Form;
using Shape = SmallKernel::Shape;
using Bytes = std::vector<unsigned char>;

constexpr std::uint64_t kMostNumbers = 4096;

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
    found = load_number_as<C, S>(static_cast<const char*>(functor) + at, 0);
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
    const bool select = kernel.action == Action::select;
    if (kernel.operands != 0 && kernel.form != Form::scalar_first && !select) {
      a = load_number<T>(inputs[next++].data(), i);
    }
    if (next < inputs.size() && !select) b = load_number<T>(inputs[next].data(), i);
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
      case Action::select:
        store_number<T>(output.data(), i,
                        load_number<T>(inputs[inputs[0][i] != 0 ? 1 : 2].data(), i));
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

// The types of what a kernel reads.
NumberType input_type(const SmallKernel& kernel, void** arguments, int input) {
  const bool flag = kernel.action == Action::select && input == 0;
  return flag ? NumberType::boolean : tensor_type(kernel, arguments, input);
}

// Where a kernel's tensors are: the output, then the inputs.
struct Tensors {
  const void* functor = nullptr;
  std::vector<DeviceAddress> addresses;
  std::vector<Offsets> offsets;  // empty: side by side
};

// Arguments: n, functor, addresses. Or n and one object of calculator, addresses and functor.
std::optional<Tensors> tensors_of(const SmallKernel& kernel, void** arguments, std::size_t count) {
  const auto tensors = static_cast<std::size_t>(kernel.operands) + 1;
  Tensors found{arguments[1], std::vector<DeviceAddress>(tensors), {}};
  if (!kernel.strided) {
    std::memcpy(found.addresses.data(), arguments[2], 8 * tensors);
    return found;
  }
  const OffsetCalculator calculator(arguments[1], tensors);
  if (!calculator.holds(count)) return {};
  for (std::size_t i = 0; i < tensors; ++i) found.offsets.push_back(calculator.offsets(count, i));
  const std::size_t behind = (OffsetCalculator::bytes(tensors) + 7) / 8 * 8;
  const char* addresses = static_cast<const char*>(arguments[1]) + behind;
  std::memcpy(found.addresses.data(), addresses, 8 * tensors);
  found.functor = addresses + 8 * tensors;
  return found;
}

std::optional<Bytes> read_tensor(const DeviceMemory& memory, const Tensors& tensors,
                                 std::size_t place, std::size_t count, NumberType type) {
  if (type == NumberType::none) return {};
  const DeviceAddress address = tensors.addresses[place];
  if (tensors.offsets.empty()) return read_bytes(memory, address, count * bytes_of(type));
  return gather(memory, address, tensors.offsets[place], bytes_of(type));
}

void write_output(DeviceMemory& memory, const Tensors& tensors, NumberType type,
                  const Bytes& output) {
  const DeviceAddress address = tensors.addresses[0];
  if (tensors.offsets.empty()) {
    write_bytes(memory, address, output);
    return;
  }
  const Offsets& offsets = tensors.offsets[0];
  auto around = read_around(memory, address, offsets, bytes_of(type));
  if (!around) return;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    std::memcpy(&(*around)[offsets[i]], &output[i * bytes_of(type)], bytes_of(type));
  }
  write_bytes(memory, address, *around);
}

void run_elementwise(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  const int count = *static_cast<const int*>(arguments[0]);
  if (count <= 0 || static_cast<std::uint64_t>(count) > kMostNumbers) return;
  const auto numbers = static_cast<std::size_t>(count);
  const auto tensors = tensors_of(kernel, arguments, numbers);
  const bool copies = kernel.action == Action::convert;
  const NumberType target = tensor_type(kernel, arguments, -1);
  if (!tensors || target == NumberType::none) return;
  std::vector<Bytes> inputs;
  for (int i = 0; i < kernel.operands; ++i) {
    const NumberType type = input_type(kernel, arguments, i);
    auto input = read_tensor(memory, *tensors, static_cast<std::size_t>(i) + 1, numbers, type);
    if (!input) return;
    const bool flag = kernel.action == Action::select && i == 0;
    const NumberType wanted = copies ? target : flag ? type : kernel.type;
    inputs.push_back(converted(*input, type, wanted, numbers));
  }
  if (copies) {
    write_output(memory, *tensors, target, inputs[0]);
    return;
  }
  Bytes output(numbers * bytes_of(kernel.result));
  // Two tensors of zeros are mostly such as nobody computed: then neither a >= b nor
  // a <= b is true. What a program does when it finds one to be is mostly to complain.
  const bool orders = kernel.action == Action::compare && kernel.operands == 2;
  if (!orders || !std::all_of(inputs.begin(), inputs.end(), is_zero)) {
    with_type(kernel.type, [&](auto element) {
      compute<decltype(element)>(kernel, tensors->functor, numbers, inputs, output);
    });
  }
  write_output(memory, *tensors, target, converted(output, kernel.result, target, numbers));
}

template <class From, class To>
void reduce(Action action, const Bytes& input, std::size_t count, Bytes& output) {
  using C = Computed<To>;
  auto result = load_number_as<C, From>(input.data(), 0);
  for (std::size_t i = 1; i < count; ++i) {
    const auto next = load_number_as<C, From>(input.data(), i);
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
// inputs, outputs, ...}, the inputs' offset calculator, the outputs' (of output and input), source,
// target.
void run_reduction(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  constexpr std::size_t kConfigBytes = 64;
  const char* operation = static_cast<const char*>(arguments[0]);
  std::size_t summed = 0;
  with_type(kernel.result, [&](auto element) { summed = sizeof(Computed<decltype(element)>); });
  const std::size_t config = std::max<std::size_t>(4, 2 * summed);
  const auto inputs = read_at<int>(operation, config + 4);
  const auto outputs = read_at<int>(operation, config + 8);
  if (inputs < 1 || outputs < 1 ||
      static_cast<std::uint64_t>(inputs) * static_cast<std::uint64_t>(outputs) > kMostNumbers) {
    return;
  }
  const std::size_t calculators = config + kConfigBytes;
  const std::size_t behind = calculators + OffsetCalculator::bytes(1) + OffsetCalculator::bytes(2);
  const std::size_t pointers = (behind + 7) / 8 * 8;
  const auto source = read_at<std::uint64_t>(operation, pointers);
  const auto target = read_at<std::uint64_t>(operation, pointers + 8);
  const OffsetCalculator in(operation + calculators, 1);
  const OffsetCalculator out(operation + calculators + OffsetCalculator::bytes(1), 2);
  const auto numbers = static_cast<std::size_t>(inputs);
  const auto results = static_cast<std::size_t>(outputs);
  if (!in.holds(numbers) || !out.holds(results) || !memory.find(source) || !memory.find(target)) {
    return;
  }
  for (std::size_t i = 0; i < results; ++i) {
    const auto input =
        gather(memory, source + out.offset(i, 1), in.offsets(numbers, 0), bytes_of(kernel.type));
    if (!input) return;
    Bytes output(bytes_of(kernel.result));
    with_type(kernel.type, [&](auto from) {
      with_type(kernel.result, [&](auto to) {
        reduce<decltype(from), decltype(to)>(kernel.action, *input, numbers, output);
      });
    });
    write_bytes(memory, target + out.offset(i, 0), output);
  }
}

}  // namespace

bool run_small_kernel(const SmallKernel& kernel, void** arguments, DeviceMemory& memory) {
  switch (kernel.shape) {
    case Shape::none:
      break;
    case Shape::elementwise:
      run_elementwise(kernel, arguments, memory);
      break;
    case Shape::reduction:
      run_reduction(kernel, arguments, memory);
      break;
    case Shape::selection:
      return run_selection(kernel, arguments, memory);
  }
  return true;
}

}  // namespace gapless::simgpu
