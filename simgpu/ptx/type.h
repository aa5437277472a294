// The types of PTX's instructions, as their names end: add.s32, cvt.rn.f16.f32, setp.lt.u64.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gapless::simgpu::ptx {

enum class Type : std::uint8_t {
  pred,
  b8,
  b16,
  b32,
  b64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  bf16,
  f16x2,
  bf16x2,
  f32,
  f64
};

/// "s32" is Type::s32; nothing where the word is no type.
std::optional<Type> type_named(std::string_view word);
std::string_view name_of(Type type);

/// In bytes; a predicate, which lies in no memory, takes one.
unsigned bytes_of(Type type);
bool is_signed(Type type);
bool is_float(Type type);

}  // namespace gapless::simgpu::ptx
