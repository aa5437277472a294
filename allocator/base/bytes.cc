#include "allocator/base/bytes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>

namespace gapless {

std::string format_bytes(std::uint64_t bytes) {
  std::array<char, 48> text{};
  const auto value = static_cast<double>(bytes);
  if (bytes < KiB) {
    std::snprintf(text.data(), text.size(), "%llu bytes", static_cast<unsigned long long>(bytes));
  } else if (bytes < MiB) {
    std::snprintf(text.data(), text.size(), "%.2f KiB", value / static_cast<double>(KiB));
  } else if (bytes < GiB) {
    std::snprintf(text.data(), text.size(), "%.2f MiB", value / static_cast<double>(MiB));
  } else {
    std::snprintf(text.data(), text.size(), "%.2f GiB", value / static_cast<double>(GiB));
  }
  return text.data();
}

namespace {

// The factor a suffix stands for; 0 when it is none we know.
double unit_factor(std::string_view suffix) {
  if (suffix.empty() || suffix == "b" || suffix == "bytes") return 1;
  constexpr std::string_view kPrefixes = "kmgt";
  const auto power = kPrefixes.find(suffix.front());
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = suffix.substr(1);
  double base = 0;
  if (rest.empty() || rest == "i" || rest == "ib") {
    base = 1024;
  } else if (rest == "b") {
    base = 1000;
  } else {
    return 0;
  }
  double factor = base;
  for (std::size_t i = 0; i < power; ++i) factor *= base;
  return factor;
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      clean += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  if (clean.empty() || (std::isdigit(static_cast<unsigned char>(clean.front())) == 0)) return {};
  std::size_t digits = 0;
  while (digits < clean.size() &&
         (std::isdigit(static_cast<unsigned char>(clean[digits])) != 0 || clean[digits] == '.')) {
    ++digits;
  }
  const double factor = unit_factor(std::string_view(clean).substr(digits));
  if (factor == 0) return {};
  constexpr double kTooLarge = 9.2e18;
  if (std::uint64_t whole = 0; factor == 1) {
    const auto [end, error] = std::from_chars(clean.data(), clean.data() + digits, whole);
    if (error != std::errc{} || end != clean.data() + digits) return {};
    if (static_cast<double>(whole) > kTooLarge) return {};
    return whole;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(clean.data(), clean.data() + digits, value);
  if (error != std::errc{} || end != clean.data() + digits) return {};
  value *= factor;
  if (value > kTooLarge) return {};
  return static_cast<std::uint64_t>(value);
}

std::optional<std::uint64_t> read_bytes(std::string_view text, std::string& cause) {
  const std::optional<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) {
    cause = "expected a size such as 2MiB or 14.5GiB";
    return {};
  }
  const bool has_unit = std::any_of(text.begin(), text.end(), [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0;
  });
  if (has_unit || *bytes == 0 || *bytes >= MiB) return bytes;
  // Cards are told in GiB, and by nvidia-smi in MiB.
  const std::string number = std::to_string(*bytes);
  cause = "that is " + number + (*bytes == 1 ? " byte; " : " bytes; ") + number +
          (*bytes < KiB ? "GiB" : "MiB") + "? (" + number + "B if it is meant so)";
  return {};
}

}  // namespace gapless
