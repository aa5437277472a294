#include "simgpu/ptx/number.h"

#include <bit>
#include <charconv>

namespace gapless::simgpu::ptx {
namespace {

template <class T>
std::optional<T> whole(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> decimal(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::uint64_t bits_of(double value, Type type) {
  if (type == Type::f32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return std::bit_cast<std::uint64_t>(value);
}

}  // namespace

std::optional<std::uint64_t> integer_of(std::string_view text) {
  while (!text.empty() && text.back() == 'U') text.remove_suffix(1);
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    return whole<std::uint64_t>(text.substr(2), 16);
  }
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B')) {
    return whole<std::uint64_t>(text.substr(2), 2);
  }
  if (text.size() > 1 && text[0] == '0') return whole<std::uint64_t>(text.substr(1), 8);
  return whole<std::uint64_t>(text, 10);
}

std::optional<std::uint64_t> number_bits(std::string_view text, bool negative, Type type) {
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F')) {
    const auto bits = whole<std::uint32_t>(text.substr(2), 16);
    if (!bits) return std::nullopt;
    const float value = std::bit_cast<float>(*bits) * (negative ? -1.0F : 1.0F);
    if (type == Type::f64) return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    return negative ? std::bit_cast<std::uint32_t>(value) : *bits;
  }
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D')) {
    const auto bits = whole<std::uint64_t>(text.substr(2), 16);
    if (!bits) return std::nullopt;
    const double value = std::bit_cast<double>(*bits) * (negative ? -1.0 : 1.0);
    if (type == Type::f32) return bits_of(value, type);
    return negative ? std::bit_cast<std::uint64_t>(value) : *bits;
  }
  if (type == Type::f32 || type == Type::f64) {
    const auto value = decimal(text);
    if (!value) return std::nullopt;
    return bits_of(negative ? -*value : *value, type);
  }
  const auto value = integer_of(text);
  if (!value) return std::nullopt;
  return negative ? ~*value + 1 : *value;
}

}  // namespace gapless::simgpu::ptx
