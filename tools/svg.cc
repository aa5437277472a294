#include "tools/svg.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "allocator/base/terminal_text.h"

namespace gapless::tools {

std::string xml_text(std::string_view text) {
  std::string safe;
  for (const char c : terminal_text(text)) {  // no control characters, and UTF-8 only
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string svg_text(double x, double y, std::string_view text, std::string_view attributes) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                     xml_text(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view attributes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, attributes);
}

double step_of(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 6)));
  for (const double factor : {1, 2, 5}) {
    if (most / (factor * power) <= 6) return factor * power;
  }
  return 10 * power;
}

std::string size_axis(const PlotArea& area, std::string_view line_attributes) {
  static constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double unit_bytes = 1;
  while (static_cast<double>(area.most_bytes) / unit_bytes >= 1024 && unit + 1 < kUnits.size()) {
    ++unit;
    unit_bytes *= 1024;
  }
  const double most = static_cast<double>(area.most_bytes) / unit_bytes;
  const double step = step_of(most);
  std::string svg;
  for (int i = 0; i * step <= most; ++i) {
    const double y = area.y(static_cast<std::uint64_t>(i * step * unit_bytes));
    svg += svg_line(area.left, y, area.right(), y, line_attributes);
    svg += svg_text(area.left - 6, y + 4, fmt::format("{:g} {}", i * step, kUnits[unit]),
                    "text-anchor=\"end\"");
  }
  return svg;
}

}  // namespace gapless::tools
