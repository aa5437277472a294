#include "allocator/device/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/nearest.h"

namespace gapless {
namespace {

// --- text of values ----------------------------------------------------------------------------

std::string text_of(std::uint64_t value, OptionType type) {
  if (type == OptionType::bytes) {
    if (value == UINT64_MAX) return "unlimited";
    for (const auto& [unit, name] : {std::pair{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}}) {
      if (value != 0 && value % unit == 0) return std::to_string(value / unit) + name;
    }
  }
  return std::to_string(value);
}
std::string text_of(double value, OptionType /*type*/) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}
std::string text_of(bool value, OptionType /*type*/) { return value ? "true" : "false"; }

std::string text_of(const std::string& value, OptionType /*type*/) {
  return value.empty() ? "none" : value;
}

// The words of a choice, in the order of its values.
template <class T>
struct Words;
template <>
struct Words<CrossStream> {
  static constexpr std::array<std::string_view, 4> words = {"budget", "completed", "wait", "never"};
  static constexpr std::string_view expected = "expected budget, completed, wait or never";
};
template <>
struct Words<ShareType> {
  static constexpr std::array<std::string_view, 3> words = {"none", "fd", "fabric"};
  static constexpr std::string_view expected = "expected fd, fabric or none";
};
template <>
struct Words<DumpSignal> {
  static constexpr std::array<std::string_view, 3> words = {"none", "usr1", "usr2"};
  static constexpr std::string_view expected = "expected USR1, USR2 or none";
};
template <class T>
concept Choice = requires {
  Words<T>::words;
};

template <Choice T>
std::string text_of(T value, OptionType /*type*/) {
  return std::string(Words<T>::words[static_cast<std::size_t>(value)]);
}

std::string text_of(const RequestedChecks& value, OptionType /*type*/) { return text_of(value); }
std::string text_of(const FencedRequests& value, OptionType /*type*/) { return text_of(value); }

// --- values of text ----------------------------------------------------------------------------

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return result;
}

bool read_value(std::string_view text, OptionType type, std::uint64_t& value, std::string& cause) {
  if (type == OptionType::bytes) {
    if (lower(text) == "unlimited") {
      value = UINT64_MAX;
      return true;
    }
    const auto bytes = read_bytes(text, cause);
    if (bytes) value = *bytes;
    return bytes.has_value();
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return true;
  cause = "expected a whole number";
  return false;
}

bool read_value(std::string_view text, OptionType /*type*/, double& value, std::string& cause) {
  if (text.ends_with('%')) text.remove_suffix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= 0 && value <= 1000) {
    return true;
  }
  cause = "expected a percentage such as 1 or 2.5";
  return false;
}

bool read_value(std::string_view text, OptionType /*type*/, bool& value, std::string& cause) {
  const std::string word = lower(text);
  if (word == "true" || word == "1" || word == "on" || word == "yes") {
    value = true;
  } else if (word == "false" || word == "0" || word == "off" || word == "no") {
    value = false;
  } else {
    cause = "expected true or false";
    return false;
  }
  return true;
}

bool read_value(std::string_view text, OptionType /*type*/, std::string& value,
                std::string& cause) {
  if (text.empty()) {
    cause = "expected a folder, or none";
    return false;
  }
  value = text == "none" ? "" : text;
  return true;
}

template <Choice T>
bool read_value(std::string_view text, OptionType /*type*/, T& value, std::string& cause) {
  constexpr auto& words = Words<T>::words;
  const auto* const found = std::find(words.begin(), words.end(), lower(text));
  if (found == words.end()) {
    cause = Words<T>::expected;
    return false;
  }
  value = static_cast<T>(found - words.begin());
  return true;
}

bool read_value(std::string_view text, OptionType /*type*/, RequestedChecks& value,
                std::string& cause) {
  return read_checks(text, value, cause);
}
bool read_value(std::string_view text, OptionType /*type*/, FencedRequests& value,
                std::string& cause) {
  return read_fenced(text, value, cause);
}

// Limits beyond what the type says.
bool check_value(const Options& options, std::string_view name, std::string& cause) {
  if (name == "page_size" && (options.page_size < 64 * KiB || options.page_size > GiB ||
                              (options.page_size & (options.page_size - 1)) != 0)) {
    cause = "expected a power of two from 64KiB to 1GiB";
    return false;
  }
  if (name == "limit" && options.limit == 0) {
    cause = "expected a size such as 14.5GiB";
    return false;
  }
  return true;
}

std::string_view nearest_option(std::string_view name) {
  std::vector<std::string_view> known;
  for (const OptionFacts& facts : option_table()) known.push_back(facts.name);
  return nearest(name, known);
}

// Settings of earlier versions for which there is no choice any more. Who still has them is not to
// be stopped by them.
bool is_retired(std::string_view name) {
  return name == "slack" || name == "frames_from" || name == "frames_per_request";
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Calls f(item) for the items between commas that are not empty.
template <class F>
void for_each_item(std::string_view text, F&& f) {
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (!item.empty()) f(item);
  }
}

}  // namespace

std::span<const OptionFacts> option_table() {
  static const Options defaults;
  static const OptionFacts table[] = {
#define GAPLESS_FACTS(type, name, value, help) \
  {#name, OptionType::type, text_of(defaults.name, OptionType::type), help},
      GAPLESS_OPTIONS(GAPLESS_FACTS)
#undef GAPLESS_FACTS
  };
  return table;
}

bool set_option(Options& options, std::string_view name, std::string_view value,
                std::string& error) {
  Options changed = options;
  std::string cause;
  bool known = false;
  bool good = false;
#define GAPLESS_SET(type, key, standard, help)                      \
  if (name == #key) {                                               \
    known = true;                                                   \
    good = read_value(value, OptionType::type, changed.key, cause); \
  }
  GAPLESS_OPTIONS(GAPLESS_SET)
#undef GAPLESS_SET
  if (!known && is_retired(name)) return true;
  if (!known) {
    error = "unknown option \"" + std::string(name) + "\"; the nearest known one is \"" +
            std::string(nearest_option(name)) + "\"";
    return false;
  }
  if (!good || !check_value(changed, name, cause)) {
    error = "option " + std::string(name) + ": \"" + std::string(value) + "\": " + cause;
    return false;
  }
  options = changed;
  return true;
}

Options parse_options(std::string_view text, std::vector<std::string>& warnings) {
  Options options;
  for_each_item(text, [&](std::string_view item) {
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      warnings.push_back("\"" + std::string(item) + "\" is not of the form key:value");
      return;
    }
    std::string error;
    if (!set_option(options, trimmed(item.substr(0, colon)), trimmed(item.substr(colon + 1)),
                    error)) {
      warnings.push_back(error);
    }
  });
  return options;
}

std::vector<std::string> passed_over(std::string_view text) {
  std::vector<std::string> names;
  for_each_item(text, [&](std::string_view item) {
    const std::string_view name = trimmed(item.substr(0, item.find(':')));
    if (is_retired(name)) names.emplace_back(name);
  });
  return names;
}

Options read_options(std::string_view text, std::string_view from) {
  std::vector<std::string> mistakes;
  Options options = parse_options(text, mistakes);
  if (mistakes.empty()) return options;
  std::string all;
  for (const std::string& mistake : mistakes) all += (all.empty() ? "" : "; ") + mistake;
  throw InputError(from.empty() ? all : std::string(from) + ": " + all);
}

Options options_from_environment() {
  const char* const text = std::getenv("GAPLESS_CONF");
  return text == nullptr ? Options{} : read_options(text, "GAPLESS_CONF");
}

std::string option_text(const Options& options, std::string_view name) {
#define GAPLESS_TEXT(type, key, standard, help) \
  if (name == #key) return text_of(options.key, OptionType::type);
  GAPLESS_OPTIONS(GAPLESS_TEXT)
#undef GAPLESS_TEXT
  return {};
}

}  // namespace gapless
