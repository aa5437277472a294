// Sizes: the units gapless counts in, and how people write and read them.
//
//   512 B      unit   the grain of every block; all offsets inside the heap are counted in units
//   2 MiB      page   the grain of physical memory (one driver handle each; an option)
//
// Sizes are plain 64-bit byte counts everywhere; a name that counts anything else says so
// (`_pages`, `_units`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gapless {

inline constexpr std::uint64_t KiB = std::uint64_t{1} << 10;
inline constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t GiB = std::uint64_t{1} << 30;
inline constexpr std::uint64_t TiB = std::uint64_t{1} << 40;

/// ceil(value / divisor); divisor > 0.
constexpr std::uint64_t div_up(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

/// The least multiple of `alignment` (> 0, any number) that is >= value.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return div_up(value, alignment) * alignment;
}

/// The greatest multiple of `alignment` (> 0, any number) that is <= value.
constexpr std::uint64_t align_down(std::uint64_t value, std::uint64_t alignment) {
  return value / alignment * alignment;
}

/// "512 bytes", "20.00 KiB", "2.32 GiB": the form PyTorch's own messages use.
std::string format_bytes(std::uint64_t bytes);

/// Reads "16GiB", "16G", "1.5 TiB", "20971520", "80 GB". K, M, G, T and KiB, MiB, ... are powers
/// of 1024; KB, MB, GB, TB are powers of 1000; case and blanks do not matter. Nothing for anything
/// else, for negative numbers and for sizes of 2^63 bytes and above.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

/// The same for what a person typed: a number below 1 MiB that names no unit is asked back, for it
/// hardly ever means bytes; 0 needs no unit. Nothing where it is no such size: `cause` says why
/// ("that is 16 bytes; 16GiB? (16B if it is meant so)").
std::optional<std::uint64_t> read_bytes(std::string_view text, std::string& cause);

}  // namespace gapless
