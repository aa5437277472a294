// CsvLines: the lines of a CSV file of plain fields, one after another, each with its number.
//
//   "id,lower\r\nb1,0\n\n"   ->   line 1: id | lower      line 2: b1 | 0
//
// Neither of the formats read here quotes its fields: a comma always ends one.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/error.h"
#include "allocator/base/read_budget.h"

namespace gapless {

class CsvLines {
 public:
  /// `text` outlives this.
  CsvLines(std::string_view text, const ReadBudget& budget) : rest_(text), file_(budget.file()) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  /// Goes to the next line that is not empty. False at the end.
  bool next() {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find('\n');
      ended_ = end != rest_.npos;
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(ended_ ? end + 1 : rest_.size());
      ++number_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty()) continue;
      fields_.clear();
      std::size_t comma = 0;
      while ((comma = line.find(',')) != line.npos && fields_.size() < kMostFields) {
        fields_.push_back(trimmed(line.substr(0, comma)));
        line.remove_prefix(comma + 1);
      }
      fields_.push_back(trimmed(line));
      return true;
    }
    return false;
  }

  [[nodiscard]] const std::vector<std::string_view>& fields() const { return fields_; }
  [[nodiscard]] std::string place() const { return "line " + std::to_string(number_); }

  [[noreturn]] void fail(const std::string& cause) const {
    throw InputError(file_, place(), cause);
  }

  /// Throws InputError where the line does not have so many fields.
  void expect_fields(std::size_t count) const {
    if (fields_.size() == count) return;
    fail(std::string(ended_ ? "" : "the file is cut off: ") + std::to_string(fields_.size()) +
         " fields; " + std::to_string(count) + " are expected");
  }

  /// A whole number of that base from 0 to `most`. Throws InputError that names `what` it is.
  [[nodiscard]] std::uint64_t number(std::string_view text, const char* what, std::uint64_t most,
                                     int base = 10) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error == std::errc() && end == text.data() + text.size() && value <= most) return value;
    fail(std::string(what) + " \"" + shortened(text) + "\": expected a whole number from 0 to " +
         std::to_string(most));
  }
  /// What stands in an error of a text of any length.
  static std::string shortened(std::string_view text) {
    constexpr std::size_t kShown = 60;
    return std::string(text.substr(0, kShown)) + (text.size() > kShown ? "..." : "");
  }

 private:
  static constexpr std::size_t kMostFields = 64;

  static std::string_view trimmed(std::string_view text) {
    while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
    while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
    return text;
  }

  std::string_view rest_;
  const std::string& file_;
  std::vector<std::string_view> fields_;
  std::uint64_t number_ = 0;
  bool ended_ = true;  // the line has its end
};

}  // namespace gapless
