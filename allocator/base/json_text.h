// JSON in and out, where what it says comes from outside.
//
//   parse_json   never nests deeper than 64, never takes more than its file's budget
//   JsonFields   the fields of an object, each of the right kind, or an error that names it
//   json_text    always ASCII: a name that is not UTF-8 becomes U+FFFD, and a terminal obeys none
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "allocator/base/read_budget.h"

namespace gapless {

/// The value a text holds. `place` is the part of the budget's file that it came from. Throws
/// InputError.
nlohmann::json parse_json(std::string_view text, ReadBudget& budget, const std::string& place);

/// The text of a value; indented where `indent` is not negative.
std::string json_text(const nlohmann::json& value, int indent = -1);

/// The fields of one object of a file. All throw InputError that names file, place and field.
class JsonFields {
 public:
  /// `value` must outlive this.
  JsonFields(const nlohmann::json& value, const std::string& file, std::string place);

  /// A whole number from `least` to `most`.
  [[nodiscard]] std::uint64_t number(const char* key, std::uint64_t most = UINT64_MAX,
                                     std::uint64_t least = 0) const;
  /// A number that is finite and not negative.
  [[nodiscard]] double real(const char* key) const;
  [[nodiscard]] bool flag(const char* key) const;
  [[nodiscard]] const std::string& text(const char* key) const;
  [[nodiscard]] const nlohmann::json::array_t& list(const char* key, std::uint64_t most) const;
  [[nodiscard]] bool has(const char* key) const { return value_.contains(key); }
  /// "devices[0].sites": the way to a field.
  [[nodiscard]] std::string place_of(const char* key) const;

  [[noreturn]] void fail(const char* key, const std::string& cause) const;

 private:
  [[nodiscard]] const nlohmann::json& at(const char* key) const;

  const nlohmann::json& value_;
  const std::string& file_;
  std::string place_;
};

}  // namespace gapless
