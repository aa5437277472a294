// From an instruction's type to the function for it:
//
//   run_for(Type::s32, kIntegers, []<class T>() -> Run { return &shift<T>; }) &shift<std::int32_t>
//   run_for(Type::f32, kIntegers, ...)                                            nullptr
#pragma once

#include <cstdint>

#include "simgpu/ptx/half.h"
#include "simgpu/ptx/instruction.h"

namespace gapless::simgpu::ptx {

template <class... T>
struct Types {};
template <class... T, class... U>
constexpr Types<T..., U...> operator+(Types<T...>, Types<U...>) {
  return {};
}

constexpr Types<std::int32_t, std::int64_t> kSignedWords;
constexpr Types<std::uint32_t, std::uint64_t> kUnsignedWords;
constexpr auto kWords = kSignedWords + kUnsignedWords;
constexpr auto kIntegers = kWords + Types<std::int16_t, std::uint16_t>{};
constexpr Types<float, double> kFloats;
constexpr Types<Half, BFloat> kSixteenBitFloats;
/// Two of 16 bits in a register of 32: f16x2, bf16x2.
template <class T>
struct Pair {
  using Part = T;
};
constexpr Types<Pair<Half>, Pair<BFloat>> kPairs;

template <class T>
constexpr Type kTypeOf = Type::pred;
template <>
inline constexpr Type kTypeOf<std::int16_t> = Type::s16;
template <>
inline constexpr Type kTypeOf<std::int32_t> = Type::s32;
template <>
inline constexpr Type kTypeOf<std::int64_t> = Type::s64;
template <>
inline constexpr Type kTypeOf<std::uint16_t> = Type::u16;
template <>
inline constexpr Type kTypeOf<std::uint32_t> = Type::u32;
template <>
inline constexpr Type kTypeOf<std::uint64_t> = Type::u64;
template <>
inline constexpr Type kTypeOf<Half> = Type::f16;
template <>
inline constexpr Type kTypeOf<BFloat> = Type::bf16;
template <>
inline constexpr Type kTypeOf<Pair<Half>> = Type::f16x2;
template <>
inline constexpr Type kTypeOf<Pair<BFloat>> = Type::bf16x2;
template <>
inline constexpr Type kTypeOf<float> = Type::f32;
template <>
inline constexpr Type kTypeOf<double> = Type::f64;

/// f<T>() for the one of T that the type is; nullptr where it is none of them.
template <class... T, class F>
Run run_for(Type type, Types<T...>, F&& f) {
  Run found = nullptr;
  ((kTypeOf<T> == type ? static_cast<void>(found = f.template operator()<T>()) : void()), ...);
  return found;
}

/// The unsigned type of as many bits, for operations to which only the bits count.
inline Type unsigned_of(Type type) {
  switch (bytes_of(type)) {
    case 2:
      return Type::u16;
    case 4:
      return Type::u32;
    case 8:
      return Type::u64;
    default:
      return type;
  }
}

/// b32 is u32; others are what they are.
inline Type number_of_bits(Type type) {
  return type >= Type::b8 && type <= Type::b64 ? unsigned_of(type) : type;
}

}  // namespace gapless::simgpu::ptx
