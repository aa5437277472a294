// Sums, products, quotients, minima, and the functions that a GPU approximates.
//
// Approximate functions (ex2.approx and its like) give what the host's do, rounded once: a GPU's
// may differ in the last bits.
#include <bit>
#include <cmath>
#include <limits>

#include "simgpu/ptx/lane_values.h"
#include "simgpu/ptx/operations.h"
#include "simgpu/ptx/rounding.h"
#include "simgpu/ptx/run_for.h"

namespace gapless::simgpu::ptx {
namespace {

template <class T>
constexpr bool kIs16 = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T>;

// f on numbers of 16 bits goes through doubles, which hold every sum and product of them, and is
// rounded once.
template <class T, class F, class... A>
T through_double(F&& f, A... a) {
  const double result = f(static_cast<double>(value_of(a))...);
  if constexpr (std::is_same_v<T, Half>) {
    return half_of(result);
  } else {
    return bfloat_of(result);
  }
}

// Integers wrap around, as on a GPU.
template <class T>
using Wrapping = std::make_unsigned_t<T>;

struct Add {
  template <class T>
  static T of(T a, T b) {
    if constexpr (kIs16<T>) {
      return through_double<T>([](double x, double y) { return x + y; }, a, b);
    } else if constexpr (kIsFloat<T>) {
      return a + b;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    }
  }
};
struct Subtract {
  template <class T>
  static T of(T a, T b) {
    if constexpr (kIs16<T>) {
      return through_double<T>([](double x, double y) { return x - y; }, a, b);
    } else if constexpr (kIsFloat<T>) {
      return a - b;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
    }
  }
};
template <class T>
T low_product(T a, T b) {
  // Of 16 bits, an int's product might overflow.
  using Wide = std::conditional_t<sizeof(T) < 4, std::uint32_t, Wrapping<T>>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
}
template <class T>
T high_product(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, Int128, UInt128>;
  return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
}
struct Multiply {
  template <class T>
  static T of(T a, T b) {
    if constexpr (kIs16<T>) {
      return through_double<T>([](double x, double y) { return x * y; }, a, b);
    } else if constexpr (kIsFloat<T>) {
      return a * b;
    } else {
      return low_product(a, b);
    }
  }
};
struct MultiplyHigh {
  template <class T>
  static T of(T a, T b) {
    return high_product(a, b);
  }
};
struct Divide {
  template <class T>
  static T of(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return a / b;
    } else {
      if (b == 0) return static_cast<T>(~T{0});
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return Subtract::of(T{0}, a);
      }
      return static_cast<T>(a / b);
    }
  }
};
struct Remainder {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};

template <class T>
bool is_nan(T a) {
  if constexpr (kIs16<T>) {
    return std::isnan(value_of(a));
  } else if constexpr (kIsFloat<T>) {
    return std::isnan(a);
  } else {
    return false;
  }
}
template <class T>
bool less(T a, T b) {
  if constexpr (kIs16<T>) {
    const float x = value_of(a);
    const float y = value_of(b);
    return x < y || (x == y && std::signbit(x) && !std::signbit(y));
  } else if constexpr (kIsFloat<T>) {
    return a < b || (a == b && std::signbit(a) && !std::signbit(b));  // -0 is less than 0
  } else {
    return a < b;
  }
}
// What is no number gives way, or with .NaN wins.
template <bool kLeast, bool kNanWins>
struct Extreme {
  template <class T>
  static T of(T a, T b) {
    if (is_nan(a)) return kNanWins ? a : b;
    if (is_nan(b)) return kNanWins ? b : a;
    return less(a, b) == kLeast ? a : b;
  }
};
using Least = Extreme<true, false>;
using Greatest = Extreme<false, false>;
using LeastOrNan = Extreme<true, true>;
using GreatestOrNan = Extreme<false, true>;

struct Absolute {
  template <class T>
  static T of(T a) {
    if constexpr (kIs16<T>) {
      return {static_cast<std::uint16_t>(a.bits & 0x7FFF)};
    } else if constexpr (kIsFloat<T>) {
      return std::fabs(a);
    } else {
      return a < 0 ? Subtract::of(T{0}, a) : a;
    }
  }
};
struct Negate {
  template <class T>
  static T of(T a) {
    if constexpr (kIs16<T>) {
      return {static_cast<std::uint16_t>(a.bits ^ 0x8000)};
    } else if constexpr (kIsFloat<T>) {
      return -a;
    } else {
      return Subtract::of(T{0}, a);
    }
  }
};
struct FusedMultiplyAdd {
  template <class T>
  static T of(T a, T b, T c) {
    if constexpr (kIs16<T>) {
      return through_double<T>([](double x, double y, double z) { return std::fma(x, y, z); }, a, b,
                               c);
    } else {
      return std::fma(a, b, c);
    }
  }
};
struct MultiplyAdd {
  template <class T>
  static T of(T a, T b, T c) {
    return Add::of(low_product(a, b), c);
  }
};
struct MultiplyHighAdd {
  template <class T>
  static T of(T a, T b, T c) {
    return Add::of(high_product(a, b), c);
  }
};
struct SquareRoot {
  template <class T>
  static T of(T a) {
    return std::sqrt(a);
  }
};
struct ReciprocalRoot {
  template <class T>
  static T of(T a) {
    return static_cast<T>(1 / std::sqrt(static_cast<double>(a)));
  }
};
struct Reciprocal {
  template <class T>
  static T of(T a) {
    return 1 / a;
  }
};
struct PowerOfTwo {
  template <class T>
  static T of(T a) {
    if constexpr (kIs16<T>) {
      return through_double<T>([](double x) { return std::exp2(x); }, a);
    } else {
      return static_cast<T>(std::exp2(static_cast<double>(a)));
    }
  }
};
struct BinaryLogarithm {
  template <class T>
  static T of(T a) {
    return static_cast<T>(std::log2(static_cast<double>(a)));
  }
};
struct Sine {
  template <class T>
  static T of(T a) {
    return static_cast<T>(std::sin(static_cast<double>(a)));
  }
};
struct Cosine {
  template <class T>
  static T of(T a) {
    return static_cast<T>(std::cos(static_cast<double>(a)));
  }
};
struct HyperbolicTangent {
  template <class T>
  static T of(T a) {
    if constexpr (kIs16<T>) {
      return through_double<T>([](double x) { return std::tanh(x); }, a);
    } else {
      return static_cast<T>(std::tanh(static_cast<double>(a)));
    }
  }
};
struct CopySign {  // the sign of the first, the rest of the second
  template <class T>
  static T of(T a, T b) {
    return std::copysign(b, a);
  }
};
struct SaturatingAdd {
  static std::int32_t of(std::int32_t a, std::int32_t b) {
    const std::int64_t sum = std::int64_t{a} + b;
    return static_cast<std::int32_t>(std::min<std::int64_t>(
        std::max<std::int64_t>(sum, std::numeric_limits<std::int32_t>::min()),
        std::numeric_limits<std::int32_t>::max()));
  }
};

// --- runs ----------------------------------------------------------------------------------------

// Two of 16 bits in one of 32.
template <class Op, class T, class... More>
std::uint32_t both(More... operands) {
  const auto part = [&](unsigned shift) -> std::uint32_t {
    return Op::of(T{static_cast<std::uint16_t>(operands >> shift)}...).bits;
  };
  return part(0) | (part(16) << 16);
}

// Op of as many operands as A has, all of type T.
template <class Op, class T, class... A>
void apply(Warp& warp, const Instruction& instruction, Mask lanes) {
  if constexpr (requires { typename T::Part; }) {
    for_lanes<std::conditional_t<true, std::uint32_t, A>...>(
        warp, instruction, lanes,
        [](auto... operands) { return both<Op, typename T::Part>(operands...); });
  } else {
    for_lanes<A...>(warp, instruction, lanes, [](A... operands) { return Op::of(operands...); });
  }
}
template <class From, class To>
void multiply_wide(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<From, From>(warp, instruction, lanes, [](From a, From b) {
    return static_cast<To>(static_cast<To>(a) * static_cast<To>(b));
  });
}
template <class From, class To>
void multiply_wide_add(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<From, From, To>(warp, instruction, lanes, [](From a, From b, To c) {
    return Add::of(static_cast<To>(static_cast<To>(a) * static_cast<To>(b)), c);
  });
}

// A sum with the lanes' carry bits: kind 1 sets them, 2 reads them, 3 does both.
template <class T, bool kSubtract>
void with_carry(Warp& warp, const Instruction& instruction, Mask lanes) {
  auto& carries = warp.carries();
  std::uint64_t* const result = warp.row(instruction.rows[0]);
  const std::uint64_t* const a = warp.row(instruction.rows[1]);
  const std::uint64_t* const b = warp.row(instruction.rows[2]);
  each_lane(lanes, [&](unsigned lane) {
    const unsigned in = (instruction.kind & 2) != 0 ? carries[lane] : 0;
    using Wide = UInt128;
    const Wide x = from_bits<T>(a[lane]);
    const Wide y = from_bits<T>(b[lane]);
    const Wide sum = kSubtract ? x - y - in : x + y + in;
    result[lane] = to_bits(static_cast<T>(sum));
    if ((instruction.kind & 1) != 0) carries[lane] = (sum >> (8 * sizeof(T))) != 0 ? 1 : 0;
  });
}

// The same of a product's lower half, or of its higher one (kind 4), and a third number.
template <class T>
void multiply_add_with_carry(Warp& warp, const Instruction& instruction, Mask lanes) {
  auto& carries = warp.carries();
  using Plain = std::make_unsigned_t<T>;
  constexpr unsigned kBits = 8 * sizeof(T);
  std::array<const std::uint64_t*, 3> from{};
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = warp.row(instruction.rows[i + 1]);
  std::uint64_t* const result = warp.row(instruction.rows[0]);
  each_lane(lanes, [&](unsigned lane) {
    const Int128 product =
        static_cast<Int128>(from_bits<T>(from[0][lane])) * from_bits<T>(from[1][lane]);
    const auto part = static_cast<Plain>((instruction.kind & 4) != 0 ? product >> kBits : product);
    const unsigned in = (instruction.kind & 2) != 0 ? carries[lane] : 0;
    const UInt128 sum = static_cast<UInt128>(part) + from_bits<Plain>(from[2][lane]) + in;
    result[lane] = to_bits(static_cast<Plain>(sum));
    if ((instruction.kind & 1) != 0) carries[lane] = (sum >> kBits) != 0 ? 1 : 0;
  });
}

// --- builds --------------------------------------------------------------------------------------

template <class Op, class TypeList>
Run unary_of(Type type, TypeList types) {
  return run_for(type, types, []<class T>() -> Run { return &apply<Op, T, T>; });
}
template <class Op, class TypeList>
Run binary_of(Type type, TypeList types) {
  return run_for(type, types, []<class T>() -> Run { return &apply<Op, T, T, T>; });
}
template <class Op, class TypeList>
Run ternary_of(Type type, TypeList types) {
  return run_for(type, types, []<class T>() -> Run { return &apply<Op, T, T, T, T>; });
}

constexpr auto kAllFloats = kFloats + kSixteenBitFloats + kPairs;
constexpr auto kNumbers = kIntegers + kAllFloats;
constexpr auto kSignedNumbers = Types<std::int16_t>{} + kSignedWords + kAllFloats;

Run multiply_wide_of(Type type, bool adds) {
  switch (type) {
    case Type::s16:
      return adds ? &multiply_wide_add<std::int16_t, std::int32_t>
                  : &multiply_wide<std::int16_t, std::int32_t>;
    case Type::u16:
      return adds ? &multiply_wide_add<std::uint16_t, std::uint32_t>
                  : &multiply_wide<std::uint16_t, std::uint32_t>;
    case Type::s32:
      return adds ? &multiply_wide_add<std::int32_t, std::int64_t>
                  : &multiply_wide<std::int32_t, std::int64_t>;
    case Type::u32:
      return adds ? &multiply_wide_add<std::uint32_t, std::uint64_t>
                  : &multiply_wide<std::uint32_t, std::uint64_t>;
    default:
      return nullptr;
  }
}

// Fills in `run`, with rounding around it where the modifiers ask for that.
void finish(const Opcode& opcode, Run run, const std::vector<Operand>& operands, std::size_t count,
            Instruction& instruction) {
  if (run == nullptr || opcode.types.size() != 1) not_known(opcode);
  take_rows(opcode, operands, count, instruction);
  instruction.type = opcode.types[0];
  const bool is_float = instruction.type == Type::f32 || instruction.type == Type::f64;
  const unsigned mode = mode_of(opcode);
  if (!is_float && (mode & ~kFlush) != 0) not_known(opcode);
  if (!is_float || mode == 0) {
    instruction.run = run;
    return;
  }
  if ((mode & kSaturate) != 0 && instruction.type != Type::f32) not_known(opcode);
  instruction.inner = run;
  instruction.mode = mode;
  instruction.run = &run_rounded;
}

using Select = Run (*)(const Opcode& opcode, Type type);
Build with(Select select, std::size_t count) {
  return [=](const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
             Instruction& instruction) {
    if (opcode.types.empty()) not_known(opcode);
    finish(opcode, select(opcode, opcode.types[0]), operands, count, instruction);
  };
}

void build_sum(const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
               Instruction& instruction) {
  const bool subtracts = opcode.name.substr(0, 3) == "sub";
  const bool reads = opcode.name == "addc" || opcode.name == "subc";
  if (opcode.types.empty()) not_known(opcode);
  const Type type = opcode.types[0];
  if (!reads && !opcode.has("cc")) {
    if (type == Type::s32 && opcode.has("sat") && !subtracts) {
      take_rows(opcode, operands, 3, instruction);
      instruction.run = &apply<SaturatingAdd, std::int32_t, std::int32_t, std::int32_t>;
      return;
    }
    finish(opcode, subtracts ? binary_of<Subtract>(type, kNumbers) : binary_of<Add>(type, kNumbers),
           operands, 3, instruction);
    return;
  }
  take_rows(opcode, operands, 3, instruction);
  instruction.kind = static_cast<std::uint8_t>((opcode.has("cc") ? 1 : 0) | (reads ? 2 : 0));
  const unsigned bytes = bytes_of(type);
  if (is_float(type) || bytes < 4) not_known(opcode);
  if (bytes == 4) {
    instruction.run =
        subtracts ? &with_carry<std::uint32_t, true> : &with_carry<std::uint32_t, false>;
  } else {
    instruction.run =
        subtracts ? &with_carry<std::uint64_t, true> : &with_carry<std::uint64_t, false>;
  }
}

Run multiply_run(const Opcode& opcode, Type type) {
  if (opcode.has("wide")) return multiply_wide_of(type, false);
  if (opcode.has("hi")) return binary_of<MultiplyHigh>(type, kIntegers);
  return binary_of<Multiply>(type, kNumbers);
}
Run multiply_add_run(const Opcode& opcode, Type type) {
  if (opcode.has("wide")) return multiply_wide_of(type, true);
  if (opcode.has("hi")) return ternary_of<MultiplyHighAdd>(type, kIntegers);
  const Run fused = ternary_of<FusedMultiplyAdd>(type, kFloats);
  return fused != nullptr ? fused : ternary_of<MultiplyAdd>(type, kIntegers);
}
void build_multiply_add(const Opcode& opcode, std::vector<Operand>& operands, KernelRows& rows,
                        Instruction& instruction) {
  const bool reads = opcode.name == "madc";
  if (!reads && !opcode.has("cc")) {
    with(multiply_add_run, 4)(opcode, operands, rows, instruction);
    return;
  }
  if (opcode.types.empty()) not_known(opcode);
  take_rows(opcode, operands, 4, instruction);
  instruction.kind = static_cast<std::uint8_t>((opcode.has("cc") ? 1 : 0) | (reads ? 2 : 0) |
                                               (opcode.has("hi") ? 4 : 0));
  // Of 64 bits too: half of a product of two such numbers, signed or not, is of its own type.
  instruction.run = run_for(opcode.types[0], kSignedWords + kUnsignedWords,
                            []<class T>() -> Run { return &multiply_add_with_carry<T>; });
  if (instruction.run == nullptr) not_known(opcode);
}
Run fused_run(const Opcode& opcode, Type type) {
  return opcode.has("relu") ? nullptr : ternary_of<FusedMultiplyAdd>(type, kAllFloats);
}

template <class Plain, class Nan>
Run extreme_run(const Opcode& opcode, Type type) {
  if (opcode.has("NaN")) return binary_of<Nan>(type, kAllFloats);
  return binary_of<Plain>(type, kNumbers);
}
template <class Op>
Run approximate_run(const Opcode&, Type type) {
  return unary_of<Op>(type, kFloats);
}

}  // namespace

Family arithmetic() {
  return {
      {"add", build_sum},
      {"sub", build_sum},
      {"addc", build_sum},
      {"subc", build_sum},
      {"mul", with(multiply_run, 3)},
      {"mad", build_multiply_add},
      {"madc", build_multiply_add},
      {"fma", with(fused_run, 4)},
      {"div",
       with([](const Opcode&, Type type) { return binary_of<Divide>(type, kIntegers + kFloats); },
            3)},
      {"rem",
       with([](const Opcode&, Type type) { return binary_of<Remainder>(type, kIntegers); }, 3)},
      {"min", with(extreme_run<Least, LeastOrNan>, 3)},
      {"max", with(extreme_run<Greatest, GreatestOrNan>, 3)},
      {"abs",
       with([](const Opcode&, Type type) { return unary_of<Absolute>(type, kSignedNumbers); }, 2)},
      {"neg",
       with([](const Opcode&, Type type) { return unary_of<Negate>(type, kSignedNumbers); }, 2)},
      {"copysign",
       with([](const Opcode&, Type type) { return binary_of<CopySign>(type, kFloats); }, 3)},
      {"sqrt", with(approximate_run<SquareRoot>, 2)},
      {"rsqrt", with(approximate_run<ReciprocalRoot>, 2)},
      {"rcp", with(approximate_run<Reciprocal>, 2)},
      {"ex2", with(
                  [](const Opcode&, Type type) {
                    return unary_of<PowerOfTwo>(type, Types<float>{} + kSixteenBitFloats + kPairs);
                  },
                  2)},
      {"lg2", with(approximate_run<BinaryLogarithm>, 2)},
      {"sin", with(approximate_run<Sine>, 2)},
      {"cos", with(approximate_run<Cosine>, 2)},
      {"tanh", with(
                   [](const Opcode&, Type type) {
                     return unary_of<HyperbolicTangent>(
                         type, Types<float>{} + kSixteenBitFloats + kPairs);
                   },
                   2)},
  };
}

}  // namespace gapless::simgpu::ptx
