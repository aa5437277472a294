#include "tools/inspect/course_chart.h"

#include <algorithm>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/table.h"
#include "tools/text_width.h"

namespace gapless::tools {
namespace {

constexpr std::size_t kRows = 10;
constexpr std::size_t kScale = 10;  // columns of the numbers at the left
constexpr std::size_t kMostColumns = 120;

}  // namespace

std::string course_chart(const std::vector<MemorySums>& course, std::size_t columns, bool colour,
                         std::size_t marked, std::size_t events) {
  if (course.empty()) return {};
  if (columns == 0) columns = 100;
  const std::size_t width =
      std::clamp<std::size_t>(columns, kScale + 12, kMostColumns) - kScale - 2;
  std::vector<MemorySums> bars(std::min(width, course.size()));
  std::uint64_t top = 1;
  for (std::size_t i = 0; i < course.size(); ++i) {
    MemorySums& bar = bars[i * bars.size() / course.size()];
    bar.active_bytes = std::max(bar.active_bytes, course[i].active_bytes);
    bar.reserved_bytes = std::max(bar.reserved_bytes, course[i].reserved_bytes);
    top = std::max({top, bar.active_bytes, bar.reserved_bytes});
  }
  // Eighths of a row, so that what changes little is seen as well.
  static constexpr const char* kEighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto eighths = [&](std::uint64_t bytes) {
    return static_cast<std::size_t>(
        static_cast<double>(bytes) / static_cast<double>(top) * (8 * kRows) + 0.5);
  };
  const char* const in_use = colour ? "\x1b[36m" : "";
  const char* const reserved = colour ? "\x1b[2m" : "";
  const char* const plain = colour ? "\x1b[0m" : "";
  std::string text;
  for (std::size_t row = kRows; row-- > 0;) {
    const std::string number = row == kRows - 1   ? format_bytes(top)
                               : row == kRows / 2 ? format_bytes(top / 2)
                                                  : "";
    text += padded(number, kScale, true) + " |";
    for (const MemorySums& bar : bars) {
      const std::size_t used = eighths(bar.active_bytes);
      const std::size_t all = eighths(bar.reserved_bytes);
      const std::size_t below = 8 * row;
      if (used > below) {
        text +=
            fmt::format("{}{}{}", in_use, kEighths[std::min<std::size_t>(8, used - below)], plain);
      } else if (all > below + 3) {
        text += fmt::format("{}░{}", reserved, plain);
      } else {
        text += ' ';
      }
    }
    text += '\n';
  }
  // The event's number stands right of its mark or, where there is no room, left of it.
  const std::size_t mark = events <= 1 ? 0 : marked * (bars.size() - 1) / (events - 1);
  const std::string number =
      fmt::format("event {} of {}", with_commas(marked), with_commas(events));
  const std::size_t before = kScale + 2 + mark;
  text += before + 2 + number.size() <= columns || before < number.size() + 1
              ? std::string(before, ' ') + "^ " + number
              : std::string(before - number.size() - 1, ' ') + number + " ^";
  text += '\n';
  text += std::string(kScale + 2, ' ') + "█ in use   ░ reserved beside\n";
  return text;
}

}  // namespace gapless::tools
