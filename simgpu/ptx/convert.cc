// cvt: from one type to another; cvta: between generic addresses and those of a space.
#include <cmath>
#include <limits>

#include "simgpu/ptx/block.h"
#include "simgpu/ptx/lane_values.h"
#include "simgpu/ptx/operations.h"
#include "simgpu/ptx/rounding.h"

namespace gapless::simgpu::ptx {
namespace {

// A number to be converted: whole, or not.
struct Number {
  bool is_whole = false;
  bool is_signed = false;
  std::int64_t whole = 0;
  double real = 0;
};

Number number_of(std::uint64_t bits, Type type) {
  const auto whole = [](std::int64_t value, bool is_signed) {
    return Number{true, is_signed, value, 0};
  };
  switch (type) {
    case Type::s8:
      return whole(from_bits<std::int8_t>(bits), true);
    case Type::s16:
      return whole(from_bits<std::int16_t>(bits), true);
    case Type::s32:
      return whole(from_bits<std::int32_t>(bits), true);
    case Type::s64:
      return whole(from_bits<std::int64_t>(bits), true);
    case Type::u8:
    case Type::b8:
      return whole(from_bits<std::uint8_t>(bits), false);
    case Type::u16:
    case Type::b16:
      return whole(from_bits<std::uint16_t>(bits), false);
    case Type::u32:
    case Type::b32:
      return whole(from_bits<std::uint32_t>(bits), false);
    case Type::f16:
      return {false, true, 0, value_of(from_bits<Half>(bits))};
    case Type::bf16:
      return {false, true, 0, value_of(from_bits<BFloat>(bits))};
    case Type::f32:
      return {false, true, 0, from_bits<float>(bits)};
    case Type::f64:
      return {false, true, 0, from_bits<double>(bits)};
    default:
      return whole(from_bits<std::int64_t>(bits), false);
  }
}

double rounded_to_integer(double value, unsigned mode) {
  switch (mode & kDirections) {
    case kToZero:
      return std::trunc(value);
    case kDown:
      return std::floor(value);
    case kUp:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

// What is beyond the type becomes its last number; what is no number, 0.
template <class T>
std::uint64_t whole_of(double value) {
  if (std::isnan(value)) return 0;
  constexpr auto kLeast = std::numeric_limits<T>::min();
  constexpr auto kMost = std::numeric_limits<T>::max();
  if (value <= static_cast<double>(kLeast)) return to_bits(kLeast);
  if (value >= static_cast<double>(kMost)) return to_bits(kMost);
  return to_bits(static_cast<T>(value));
}

template <class T>
std::uint64_t narrowed(const Number& number, bool saturates) {
  if (saturates) {
    const Int128 value = number.is_signed
                             ? static_cast<Int128>(number.whole)
                             : static_cast<Int128>(static_cast<std::uint64_t>(number.whole));
    if (value < std::numeric_limits<T>::min()) return to_bits(std::numeric_limits<T>::min());
    if (value > std::numeric_limits<T>::max()) return to_bits(std::numeric_limits<T>::max());
  }
  return to_bits(static_cast<T>(number.whole));
}

template <class T>
std::uint64_t to_whole(const Number& number, unsigned mode) {
  if (number.is_whole) return narrowed<T>(number, (mode & kSaturate) != 0);
  return whole_of<T>(rounded_to_integer(number.real, mode));
}

// Toward zero: the nearest, or the one before it.
std::uint16_t toward_zero(double value, std::uint16_t nearest, double of_nearest) {
  return std::fabs(of_nearest) > std::fabs(value) ? static_cast<std::uint16_t>(nearest - 1)
                                                  : nearest;
}

std::uint64_t converted(std::uint64_t bits, Type from, Type to, unsigned mode) {
  const Number number = number_of(bits, from);
  switch (to) {
    case Type::s8:
      return to_whole<std::int8_t>(number, mode);
    case Type::s16:
      return to_whole<std::int16_t>(number, mode);
    case Type::s32:
      return to_whole<std::int32_t>(number, mode);
    case Type::s64:
      return to_whole<std::int64_t>(number, mode);
    case Type::u8:
      return to_whole<std::uint8_t>(number, mode);
    case Type::u16:
      return to_whole<std::uint16_t>(number, mode);
    case Type::u32:
      return to_whole<std::uint32_t>(number, mode);
    case Type::u64:
      return to_whole<std::uint64_t>(number, mode);
    default:
      break;
  }
  double value = number.real;
  if (number.is_whole && to == Type::f32) {
    // Rounded once, not by way of a double.
    const float single = number.is_signed
                             ? static_cast<float>(number.whole)
                             : static_cast<float>(static_cast<std::uint64_t>(number.whole));
    return to_bits(single);
  }
  if (number.is_whole) {
    value = number.is_signed ? static_cast<double>(number.whole)
                             : static_cast<double>(static_cast<std::uint64_t>(number.whole));
  }
  if ((mode & kToInteger) != 0) value = rounded_to_integer(value, mode);
  if ((mode & kSaturate) != 0) value = value > 1 ? 1 : value > 0 ? value : 0;
  const bool to_zero = (mode & kDirections) == kToZero && (mode & kToInteger) == 0;
  if (to == Type::f64) return to_bits(value);
  if (to == Type::f32) return to_bits(static_cast<float>(value));
  if (to == Type::f16) {
    const Half nearest = half_of(value);
    return to_zero ? toward_zero(value, nearest.bits, value_of(nearest)) : nearest.bits;
  }
  const BFloat nearest = bfloat_of(value);
  return to_zero ? toward_zero(value, nearest.bits, value_of(nearest)) : nearest.bits;
}

void convert(Warp& warp, const Instruction& instruction, Mask lanes) {
  const Rounding rounding((instruction.mode & kToInteger) != 0 ? instruction.mode & kFlush
                                                               : instruction.mode);
  for_lanes<std::uint64_t>(warp, instruction, lanes, [&](std::uint64_t bits) {
    return converted(bits, instruction.from, instruction.type, instruction.mode);
  });
}

// Two floats to one register of two halves: the first operand is the upper one.
void convert_two(Warp& warp, const Instruction& instruction, Mask lanes) {
  const Type part = instruction.type == Type::f16x2 ? Type::f16 : Type::bf16;
  for_lanes<std::uint64_t, std::uint64_t>(
      warp, instruction, lanes, [&](std::uint64_t upper, std::uint64_t lower) {
        return static_cast<std::uint32_t>(
            (converted(upper, instruction.from, part, instruction.mode) << 16) |
            converted(lower, instruction.from, part, instruction.mode));
      });
}

bool is_known(Type type) {
  return type != Type::pred && type != Type::f16x2 && type != Type::bf16x2;
}

void build_cvt(const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
               Instruction& instruction) {
  if (opcode.types.size() != 2 || opcode.has("relu") || opcode.has("satfinite")) not_known(opcode);
  instruction.type = opcode.types[0];
  instruction.from = opcode.types[1];
  instruction.mode = mode_of(opcode);
  const bool is_pair = instruction.type == Type::f16x2 || instruction.type == Type::bf16x2;
  if (!is_known(instruction.from) || (!is_pair && !is_known(instruction.type))) not_known(opcode);
  take_rows(opcode, operands, is_pair ? 3 : 2, instruction);
  instruction.run = is_pair ? &convert_two : &convert;
}

// mode: the space's bit is set, or taken away.
void change_space(Warp& warp, const Instruction& instruction, Mask lanes) {
  const std::uint64_t bit = instruction.space == Space::shared  ? kSharedWindow
                            : instruction.space == Space::local ? kLocalWindow
                                                                : 0;
  for_lanes<std::uint64_t>(warp, instruction, lanes, [&](std::uint64_t address) {
    return instruction.mode != 0 ? address & ~bit : address | bit;
  });
}

Space space_of(const Opcode& opcode) {
  for (const std::string_view word : opcode.modifiers) {
    if (word.substr(0, 6) == "shared") return Space::shared;
    if (word == "local") return Space::local;
    if (word == "global" || word == "const" || word == "param") return Space::global;
  }
  not_known(opcode);
}

void build_cvta(const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
                Instruction& instruction) {
  instruction.space = space_of(opcode);
  if (opcode.has("param")) not_known(opcode);
  instruction.mode = opcode.has("to") ? 1 : 0;
  instruction.run = &change_space;
  take_rows(opcode, operands, 2, instruction);
}

void is_in_space(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<std::uint64_t>(warp, instruction, lanes, [&](std::uint64_t address) {
    const Space space = (address & kSharedWindow) != 0  ? Space::shared
                        : (address & kLocalWindow) != 0 ? Space::local
                                                        : Space::global;
    return space == instruction.space;
  });
}

}  // namespace

Family conversions() {
  return {{"cvt", build_cvt},
          {"cvta", build_cvta},
          {"isspacep", [](const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
                          Instruction& instruction) {
             instruction.space = space_of(opcode);
             instruction.run = &is_in_space;
             take_rows(opcode, operands, 2, instruction);
           }}};
}

}  // namespace gapless::simgpu::ptx
