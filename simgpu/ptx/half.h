// Halves (IEEE 754 binary16) and bfloat16: what PTX keeps in registers of 16 bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace gapless::simgpu::ptx {

struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};

/// A float of `exponent` and `fraction` bits, in the low bits; to the nearest, ties to even. From a
/// double, so that the result of an operation on 16 bits that is exact in a double is rounded once.
constexpr std::uint16_t rounded_bits(double value, int exponent, int fraction) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 63) << (exponent + fraction));
  const int bias = (1 << (exponent - 1)) - 1;
  const int largest = (1 << exponent) - 1;
  const auto infinity = static_cast<std::uint16_t>(largest << fraction);
  const auto own = static_cast<int>((bits >> 52) & 0x7FF);
  std::uint64_t significand = bits & ((std::uint64_t{1} << 52) - 1);
  if (own == 0x7FF) {
    if (significand != 0) return static_cast<std::uint16_t>(0x7FFF);  // as a GPU writes NaN
    return static_cast<std::uint16_t>(sign | infinity);
  }
  if (own == 0) return sign;  // a double's subnormal is nothing here
  significand |= std::uint64_t{1} << 52;
  int to = own - 1023 + bias;
  int drop = 52 - fraction;
  if (to <= 0) {  // subnormal
    drop += 1 - to;
    to = 0;
    if (drop > 54) return sign;
  }
  std::uint64_t kept = significand >> drop;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << drop) - 1);
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // The leading bit of a normal number raises the exponent by one, as rounding up may once more.
  const std::uint64_t made = (static_cast<std::uint64_t>(to > 0 ? to - 1 : 0) << fraction) + kept;
  return static_cast<std::uint16_t>(sign | (made >= infinity ? infinity : made));
}

constexpr Half half_of(double value) { return {rounded_bits(value, 5, 10)}; }
constexpr BFloat bfloat_of(double value) { return {rounded_bits(value, 8, 7)}; }

constexpr float value_of(BFloat number) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(number.bits) << 16);
}
constexpr float value_of(Half number) {
  const std::uint32_t sign = static_cast<std::uint32_t>(number.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (number.bits >> 10) & 0x1F;
  const std::uint32_t fraction = number.bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  }
  const float small = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -small : small;
}

}  // namespace gapless::simgpu::ptx
