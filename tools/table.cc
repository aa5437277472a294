#include "tools/table.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "allocator/base/terminal_text.h"

namespace gapless::tools {
namespace {

constexpr std::size_t kBetween = 2;        // blanks between two columns
constexpr std::size_t kIndent = 4;         // of a row's second line and those after it
constexpr std::size_t kLeastWrapped = 16;  // a column that wraps is no narrower

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

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    longest = std::max(longest, columns_of(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

// Columns from `first` to before `last` side by side.
struct Band {
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t indent = 0;
};

// How wide each column is, and which stand side by side.
struct Layout {
  std::vector<std::size_t> widths;
  std::vector<Band> bands;

  [[nodiscard]] std::size_t width_of(const Band& band) const {
    std::size_t sum = band.indent;
    for (std::size_t i = band.first; i < band.last; ++i) {
      sum += widths[i] + (i == band.first ? 0 : kBetween);
    }
    return sum;
  }
};

Layout layout_of(const std::vector<Table::Column>& columns,
                 const std::vector<std::vector<Cell>>& rows, std::size_t most) {
  std::vector<std::size_t> cells(columns.size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      cells[i] = std::max(cells[i], columns_of(row[i].text));
    }
  }
  const Band all{0, columns.size(), 0};
  Layout layout;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    layout.widths.push_back(std::max(cells[i], columns_of(columns[i].head)));
  }
  layout.bands = {all};
  if (layout.width_of(all) <= (most == 0 ? kReadableColumns : most)) return layout;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    layout.widths[i] = std::max(cells[i], longest_word(columns[i].head));
  }
  if (most == 0) return layout;
  // What is too much is taken from the columns that wrap, the widest first.
  while (layout.width_of(all) > most) {
    std::size_t* widest = nullptr;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      std::size_t& width = layout.widths[i];
      if (!columns[i].wraps || width <= kLeastWrapped) continue;
      if (widest == nullptr || width > *widest) widest = &width;
    }
    if (widest == nullptr) break;
    --*widest;
  }
  if (layout.width_of(all) <= most) return layout;
  layout.bands.clear();
  for (std::size_t i = 0; i < columns.size();) {
    Band band{i, i, i == 0 ? 0 : kIndent};
    const std::size_t room = most - std::min(most - 2, band.indent);
    for (; band.last < columns.size(); ++band.last) {
      std::size_t& width = layout.widths[band.last];
      // After the first line of a row there is room for heads in one.
      if (i != 0) width = std::max(width, columns_of(columns[band.last].head));
      width = std::min(width, room);
      const Band longer{band.first, band.last + 1, band.indent};
      if (band.last != i && layout.width_of(longer) > most) break;
    }
    layout.bands.push_back(band);
    i = band.last;
  }
  return layout;
}

// The cells of one row in a band, in as many lines as they take; lines without any are left out.
std::string lines_of_row(const std::vector<Table::Column>& columns, const std::vector<Cell>& row,
                         const Layout& layout, const Band& band, bool colour, bool at_the_bottom) {
  std::vector<std::vector<std::string>> cells;
  std::size_t height = 0;
  for (std::size_t i = band.first; i < band.last; ++i) {
    cells.push_back(lines_of(row[i].text, layout.widths[i]));
    height = std::max(height, cells.back().size());
  }
  std::string out;
  for (std::size_t line = 0; line < height; ++line) {
    std::string text;
    std::size_t blanks = band.indent;  // before what comes next
    for (std::size_t i = band.first; i < band.last; ++i) {
      const std::vector<std::string>& cell = cells[i - band.first];
      const std::size_t above = at_the_bottom ? height - cell.size() : 0;
      const bool there = line >= above && line - above < cell.size();
      const std::string piece = there ? cell[line - above] : "";
      const std::size_t spare = layout.widths[i] - std::min(layout.widths[i], columns_of(piece));
      const bool right = columns[i].align == Table::Align::right;
      blanks += right ? spare : 0;
      if (!piece.empty()) {
        text.append(std::exchange(blanks, 0), ' ');
        const bool plain = !colour || row[i].colour == Colour::none;
        text += plain ? piece : code_of(row[i].colour) + piece + "\x1b[0m";
      }
      blanks += kBetween + (right ? 0 : spare);
    }
    if (!text.empty()) out += text + "\n";
  }
  return out;
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  for (Cell& cell : row) cell.text = terminal_text(cell.text);
  rows_.push_back(std::move(row));
}

std::string Table::text(bool colour, std::size_t columns) const {
  // Narrower terminals than that there are not.
  constexpr std::size_t kLeast = 20;
  const Layout layout = layout_of(columns_, rows_, columns == 0 ? 0 : std::max(columns, kLeast));
  std::vector<Cell> heads;
  for (const Column& column : columns_) heads.push_back({column.head, Colour::none});
  std::string out;
  std::size_t widest = 0;
  for (const Band& band : layout.bands) {
    out += lines_of_row(columns_, heads, layout, band, false, true);
    widest = std::max(widest, layout.width_of(band));
  }
  if (layout.bands.size() == 1) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      out += (i == 0 ? "" : "  ") + std::string(layout.widths[i], '-');
    }
  } else {
    out += std::string(widest, '-');
  }
  out += "\n";
  for (const auto& row : rows_) {
    if (row.empty()) out += "\n";
    for (const Band& band : layout.bands) {
      if (!row.empty()) out += lines_of_row(columns_, row, layout, band, colour, false);
    }
  }
  return out;
}

bool colour_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  return (no_colour == nullptr || *no_colour == '\0') && isatty(STDOUT_FILENO) != 0;
}

std::string percent_of(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
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
