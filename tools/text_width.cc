#include "tools/text_width.h"

#include <algorithm>
#include <charconv>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include <sys/ioctl.h>
#include <unistd.h>

#include "allocator/base/terminal_text.h"

namespace gapless::tools {
namespace {

struct Letter {
  std::size_t bytes = 1;
  std::size_t columns = 1;
};

// The C library knows how wide letters are, in a locale of UTF-8.
class Letters {
 public:
  explicit Letters(std::string_view text) : text_(text) {
    static locale_t const utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (utf8 != nullptr) before_ = uselocale(utf8);
  }
  ~Letters() {
    if (before_ != nullptr) uselocale(before_);
  }
  Letters(const Letters&) = delete;
  Letters& operator=(const Letters&) = delete;

  [[nodiscard]] Letter at(std::size_t place) const {
    std::mbstate_t state{};
    wchar_t letter = 0;
    const std::size_t bytes =
        std::mbrtowc(&letter, text_.data() + place, text_.size() - place, &state);
    if (bytes == 0 || bytes > text_.size()) return {};  // no letter: a byte by itself
    const int columns = wcwidth(letter);
    return {bytes, static_cast<std::size_t>(std::max(columns, 0))};
  }

 private:
  std::string_view text_;
  locale_t before_ = nullptr;
};

// How much of a text fits into so many columns: bytes, at least one letter.
std::size_t fitting(std::string_view text, std::size_t columns) {
  const Letters letters(text);
  std::size_t bytes = 0;
  for (std::size_t taken = 0; bytes < text.size();) {
    const Letter letter = letters.at(bytes);
    taken += letter.columns;
    if (taken > columns && bytes != 0) break;
    bytes += letter.bytes;
  }
  return bytes;
}

}  // namespace

std::size_t terminal_columns(int file) {
  if (isatty(file) == 0) return 0;
  if (const char* const text = std::getenv("COLUMNS"); text != nullptr) {
    std::size_t columns = 0;
    const char* const end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, columns);
    if (error == std::errc{} && stop == end && columns != 0) return columns;
  }
  winsize size{};
  return ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::size_t columns_of(std::string_view text) {
  const Letters letters(text);
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Letter letter = letters.at(at);
    columns += letter.columns;
    at += letter.bytes;
  }
  return columns;
}

std::string padded(std::string_view text, std::size_t columns, bool in_front) {
  const std::size_t taken = columns_of(text);
  const std::string blanks(columns - std::min(columns, taken), ' ');
  return in_front ? blanks + std::string(text) : std::string(text) + blanks;
}

std::string last_columns(std::string_view text, std::size_t columns) {
  const Letters letters(text);
  std::size_t taken = columns_of(text);
  std::size_t begin = 0;
  while (taken > columns && begin < text.size()) {
    const Letter letter = letters.at(begin);
    taken -= letter.columns;
    begin += letter.bytes;
  }
  // What stands over the letter that is left out goes with it.
  while (begin != 0 && begin < text.size() && letters.at(begin).columns == 0) {
    begin += letters.at(begin).bytes;
  }
  return std::string(text.substr(begin));
}

std::vector<std::string> lines_of(std::string_view text, std::size_t columns) {
  columns = std::max<std::size_t>(columns, 2);
  std::vector<std::string> lines;
  do {
    const std::size_t line_end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, line_end);
    text.remove_prefix(std::min(line_end + 1, text.size()));
    do {
      std::size_t end = fitting(rest, columns);
      std::size_t next = end;
      if (end < rest.size()) {
        // The last blank that fits, or stands right behind what does; none: within the word, and
        // there behind a folder, so that a file stays with its line.
        const std::size_t blank = rest.rfind(' ', end);
        const std::size_t folder = rest.substr(0, end).rfind('/');
        if (blank != std::string_view::npos && rest.find_first_not_of(' ') < blank) {
          end = blank;
          next = rest.find_first_not_of(' ', blank);
        } else if (folder != std::string_view::npos && folder != 0) {
          end = next = folder + 1;
        }
      }
      std::string_view line = rest.substr(0, end);
      while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
      lines.emplace_back(line);
      rest.remove_prefix(std::min(next, rest.size()));
    } while (!rest.empty());
  } while (!text.empty());
  return lines;
}

std::string message(std::string_view text) {
  const std::size_t columns = terminal_columns(STDERR_FILENO);
  const std::string safe = terminal_text(text);
  std::string lines;
  for (const std::string& line : lines_of(safe, columns == 0 ? safe.size() : columns)) {
    lines += line + "\n";
  }
  return lines;
}

std::string paragraph(std::string_view text) {
  const std::size_t columns = terminal_columns(STDOUT_FILENO);
  std::string lines;
  for (const std::string& line :
       lines_of(terminal_text(text),
                columns == 0 ? kReadableColumns : std::min(columns, kReadableColumns))) {
    lines += line + "\n";
  }
  return lines;
}

}  // namespace gapless::tools
