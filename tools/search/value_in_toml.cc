#include "tools/search/value_in_toml.h"

#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include "allocator/base/error.h"
#include "tools/search/dotted_key.h"

namespace gapless::tools {
namespace {

[[noreturn]] void fail(const std::string& file, const std::string& key, const char* cause) {
  throw InputError(fmt::format("{}: {}: {}", file, key, cause));
}

toml::table parsed(const std::string& file, const std::string& text) {
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw InputError(
        fmt::format("{}: line {}: {}", file, error.source().begin.line, error.description()));
  }
}

toml::node* node_at(toml::node& from, const std::string& key) {
  if (key.empty()) return &from;
  toml::node* there = nullptr;
  any_split(key, [&](const std::string& name, const std::string& rest) {
    toml::node* next = nullptr;
    if (toml::table* const table = from.as_table(); table != nullptr) next = table->get(name);
    if (toml::array* const array = from.as_array(); array != nullptr) {
      next = array->get(position_of(name));
    }
    if (next != nullptr) there = node_at(*next, rest);
    return there != nullptr;
  });
  return there;
}

// Where a place of the text lies: lines and columns, of characters, count from one.
std::optional<std::size_t> offset_of(const std::string& text, const toml::source_position& place) {
  std::size_t at = 0;
  for (toml::source_index line = 1; line < place.line; ++line) {
    at = text.find('\n', at);
    if (at == std::string::npos) return {};
    ++at;
  }
  for (toml::source_index column = 1; column < place.column; ++column) {
    if (at >= text.size()) return {};
    do ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80);
  }
  return at;
}

// As TOML has it: what reads like a number or a constant is one, unless a text was there.
std::string written(const std::string& value, bool was_text) {
  if (!was_text) {
    try {
      const toml::table read = toml::parse("value = " + value + "\n");
      const toml::node* const node = read.get("value");
      if (read.size() == 1 && node->is_value() && !node->is_string()) return value;
    } catch (const toml::parse_error&) {  // so it is a text
    }
  }
  return nlohmann::json(value).dump();  // TOML's escapes are JSON's
}

}  // namespace

std::string with_toml_value(const std::string& file, const std::string& text,
                            const std::string& key, const std::string& value) {
  toml::table all = parsed(file, text);
  toml::node* const node = node_at(all, key);
  if (node == nullptr) fail(file, key, "there is no such key");
  if (!node->is_value()) fail(file, key, "it has several values");
  const auto begin = offset_of(text, node->source().begin);
  const auto end = offset_of(text, node->source().end);
  if (!begin || !end || *end < *begin) fail(file, key, "its place is not known");
  std::string changed =
      text.substr(0, *begin) + written(value, node->is_string()) + text.substr(*end);
  toml::table read = parsed(file, changed);
  const toml::node* const there = node_at(read, key);
  const bool as_asked = there != nullptr && there->is_value() &&
                        (!there->is_string() || there->value<std::string>() == value);
  if (!as_asked) fail(file, key, "its value cannot be replaced without changing more");
  return changed;
}

}  // namespace gapless::tools
