// A table for people: columns as wide as their texts, numbers to the right, a rule under the head.
//
//   allocator    reserved  overhead
//   ----------  ---------  --------
//   gapless     13.66 GiB     0.3 %
//
// Where the terminal is narrower than that, texts of columns that may wrap do, and where that is
// not enough each row takes several lines:
//
//   trace             allocator
//       allocated   reserved
//   ----------------------------
//   qwen-lora-varlen  gapless
//       13.61 GiB  13.70 GiB
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <unistd.h>

#include "tools/text_width.h"

namespace gapless::tools {

enum class Colour { none, good, bad, dim };

struct Cell {
  std::string text;
  Colour colour = Colour::none;
};

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string head;
    Align align = Align::right;
    bool wraps = false;  // its texts may be broken into lines
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as there are columns. Their texts may come from outside.
  void add(std::vector<Cell> row);
  /// An empty line between two rows.
  void gap() { rows_.emplace_back(); }
  /// With colours where `colour` is true; in so many columns (0: as many as it takes).
  [[nodiscard]] std::string text(bool colour,
                                 std::size_t columns = terminal_columns(STDOUT_FILENO)) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// Whether standard output is a terminal that wants colour (NO_COLOR is honoured).
bool colour_wanted();

/// "12,345,678"
std::string with_commas(std::uint64_t value);
/// "58.7 %"; "-" of nothing.
std::string percent_of(std::uint64_t part, std::uint64_t whole);
/// "1.50 ms", "830 ns"
std::string format_ns(double ns);

}  // namespace gapless::tools
