// Text in columns of a terminal: how wide it is, and how it is broken into lines.
//
//   columns_of("模型")  ->  4          a Chinese letter takes two columns, a combining accent none
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gapless::tools {

/// Where there is no terminal, or a wider one: what is read with ease.
inline constexpr std::size_t kReadableColumns = 100;

/// Columns of the terminal behind a file descriptor, or by COLUMNS; 0, no limit, where there
/// is none.
std::size_t terminal_columns(int file);

/// Columns that a text in UTF-8 takes; what is not UTF-8 counts as one for each byte.
std::size_t columns_of(std::string_view text);

/// The text padded with blanks to so many columns, in front of it or behind it.
std::string padded(std::string_view text, std::size_t columns, bool in_front);

/// A text's end, of at most so many columns.
std::string last_columns(std::string_view text, std::size_t columns);

/// Lines of at most so many columns (at least 2), broken at blanks, and within words longer than
/// that (behind the last folder of a path). Line ends in the text are kept; an empty text is one
/// empty line.
std::vector<std::string> lines_of(std::string_view text, std::size_t columns);

/// Text for standard output, broken to the terminal's columns, or kReadableColumns; ends with a
/// line end.
std::string paragraph(std::string_view text);

/// Text for standard error, broken to its terminal's columns, else as it is; ends with a line end.
std::string message(std::string_view text);

}  // namespace gapless::tools
