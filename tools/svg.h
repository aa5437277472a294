// Pieces of pictures in SVG: texts that are safe, and a plot's frame with its axis of sizes.
//
//    2 GiB |---------------
//          |         ,---        PlotArea: what is drawn between the axes
//    1 GiB |--------/------
//          |    ,--'
//    0 GiB +---------------
//          0   columns
//
// Texts may come from anywhere, and are escaped. Attributes are the caller's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gapless::tools {

/// Text that may stand in XML: markup and what no document may hold are replaced.
std::string xml_text(std::string_view text);

std::string svg_text(double x, double y, std::string_view text, std::string_view attributes = "");
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view attributes);

/// Where things lie in a plot.
struct PlotArea {
  double left = 0;
  double top = 0;
  double width = 1;
  double height = 1;
  std::uint64_t most_bytes = 1;  // at the upper edge; not 0
  std::size_t columns = 1;       // not 0

  [[nodiscard]] double right() const { return left + width; }
  [[nodiscard]] double bottom() const { return top + height; }
  /// The left edge of a column.
  [[nodiscard]] double x(std::size_t column) const {
    return left + width * static_cast<double>(column) / static_cast<double>(columns);
  }
  [[nodiscard]] double y(std::uint64_t bytes) const {
    return top + height * (1 - static_cast<double>(bytes) / static_cast<double>(most_bytes));
  }
};

/// The step of a scale up to `most` (more than 0): 1, 2 or 5 times a power of ten, so that there
/// are at most six.
double step_of(double most);

/// Lines across the plot at round sizes, named at its left in the unit that suits the largest.
std::string size_axis(const PlotArea& area, std::string_view line_attributes);

}  // namespace gapless::tools
