// The types of numbers that tensors are made of, where the host computes with them.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gapless::simgpu {

// IEEE binary16 and bfloat16, as their bits. Narrowing rounds toward zero: what is computed here
// are flags and counts.
struct Half {
  std::uint16_t bits;
  explicit operator float() const {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    float value = 0;
    if (exponent == 0) {
      value = std::ldexp(static_cast<float>(fraction), -24);
    } else if (exponent == 31) {
      value = fraction == 0 ? HUGE_VALF : NAN;
    } else {
      value = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -value : value;
  }
  static Half from(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(all >> 16 & 0x8000);
    const int exponent = static_cast<int>(all >> 23 & 255) - 127 + 15;
    if (std::isnan(value)) return {static_cast<std::uint16_t>(sign | 0x7e00)};
    if (exponent >= 31) return {static_cast<std::uint16_t>(sign | 0x7c00)};
    if (exponent <= 0) {
      const auto fraction = static_cast<int>(std::ldexp(std::fabs(value), 24));
      return {static_cast<std::uint16_t>(sign | fraction)};
    }
    return {static_cast<std::uint16_t>(sign | exponent << 10 | (all >> 13 & 1023))};
  }
};
struct Bfloat {
  std::uint16_t bits;
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  static Bfloat from(float value) {
    return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)};
  }
};

enum class NumberType : int { none, i8, u8, i16, i32, u32, i64, u64, f16, bf16, f32, f64, boolean };

/// What lies at an address of the host, aligned or not.
template <class T>
T read_at(const void* base, std::size_t offset = 0) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

/// Calls f(element) with an element of the type; false for none.
template <class F>
bool with_type(NumberType type, F&& f) {
  switch (type) {
    case NumberType::i8:
      return f(std::int8_t{}), true;
    case NumberType::u8:
      return f(std::uint8_t{}), true;
    case NumberType::i16:
      return f(std::int16_t{}), true;
    case NumberType::i32:
      return f(std::int32_t{}), true;
    case NumberType::u32:
      return f(std::uint32_t{}), true;
    case NumberType::i64:
      return f(std::int64_t{}), true;
    case NumberType::u64:
      return f(std::uint64_t{}), true;
    case NumberType::f16:
      return f(Half{}), true;
    case NumberType::bf16:
      return f(Bfloat{}), true;
    case NumberType::f32:
      return f(float{}), true;
    case NumberType::f64:
      return f(double{}), true;
    case NumberType::boolean:
      return f(bool{}), true;
    case NumberType::none:
      break;
  }
  return false;
}

inline std::size_t bytes_of(NumberType type) {
  std::size_t bytes = 0;
  with_type(type, [&](auto element) { bytes = sizeof element; });
  return bytes;
}

template <class T>
constexpr bool kIsNarrow = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>;

/// What a number of type T is computed as (PyTorch's opmath_t).
template <class T>
using Computed = std::conditional_t<kIsNarrow<T>, float, T>;

template <class T>
Computed<T> load_number(const void* base, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * sizeof(T), sizeof value);
  return static_cast<Computed<T>>(value);
}

/// The same as a `C`.
template <class C, class T>
C load_number_as(const void* base, std::size_t index) {
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): numbers, no characters
  return static_cast<C>(load_number<T>(base, index));
}

template <class T, class U>
void store_number(void* base, std::size_t index, U from) {
  T value;
  if constexpr (kIsNarrow<T>) {
    value = T::from(static_cast<float>(from));
  } else {
    value = static_cast<T>(from);  // NOLINT(bugprone-signed-char-misuse): numbers, no characters
  }
  std::memcpy(static_cast<char*>(base) + index * sizeof(T), &value, sizeof value);
}

}  // namespace gapless::simgpu
