#include "tools/table.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

namespace gapless::tools {
namespace {

const char* code_of(Colour colour) {
  switch (colour) {
    case Colour::good:
      return "\x1b[32m";
    case Colour::bad:
      return "\x1b[31m";
    case Colour::dim:
      return "\x1b[2m";
    case Colour::none:
      break;
  }
  return "";
}

}  // namespace

std::string Table::text(bool colour) const {
  std::vector<std::size_t> width;
  for (const Column& column : columns_) width.push_back(column.head.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].text.size());
  }
  const auto padded = [&](std::size_t i, const std::string& text) {
    return columns_[i].align == Align::left ? fmt::format("{:<{}}", text, width[i])
                                            : fmt::format("{:>{}}", text, width[i]);
  };
  std::string out;
  const auto line = [&](const auto& cell) {
    std::string text;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i != 0) text += "  ";
      text += cell(i);
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    out += text + "\n";
  };
  line([&](std::size_t i) { return padded(i, columns_[i].head); });
  line([&](std::size_t i) { return std::string(width[i], '-'); });
  for (const auto& row : rows_) {
    if (row.empty()) {
      out += "\n";
      continue;
    }
    line([&](std::size_t i) {
      std::string text = padded(i, row[i].text);
      if (!colour || row[i].colour == Colour::none) return text;
      return code_of(row[i].colour) + text + "\x1b[0m";
    });
  }
  return out;
}

bool colour_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  return (no_colour == nullptr || *no_colour == '\0') && isatty(STDOUT_FILENO) != 0;
}

std::string with_commas(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string format_ns(double ns) {
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.1f} ms", ns / 1e6);
  return fmt::format("{:.2f} s", ns / 1e9);
}

}  // namespace gapless::tools
