#include "tools/search/varied.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "tools/own_folder.h"
#include "tools/search/value_in_file.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

[[noreturn]] void fail(const std::string& text, const std::string& cause) {
  throw InputError(fmt::format("--vary {}: {}", text, cause));
}

// MIN:MAX:STEP
std::vector<std::string> range_of(const std::string& option, const std::string& text) {
  const std::vector<std::string> parts = parts_of(text, ':');
  std::vector<long long> numbers;
  for (const std::string& part : parts) {
    const auto number = number_in<long long>(part);
    if (!number) fail(option, fmt::format("\"{}\" is no whole number", part));
    numbers.push_back(*number);
  }
  if (numbers.size() > 3) fail(option, "a range is MIN:MAX or MIN:MAX:STEP");
  const long long least = numbers[0];
  const long long most = numbers[1];
  const long long step = numbers.size() == 3 ? numbers[2] : 1;
  if (step <= 0) fail(option, fmt::format("a step of {} leads nowhere", step));
  if (least > most) fail(option, fmt::format("from {} to {} there is nothing", least, most));
  // In unsigned numbers it cannot overflow.
  const unsigned long long steps =
      (static_cast<unsigned long long>(most) - static_cast<unsigned long long>(least)) / step;
  if (steps >= Varied::kMostValues) {
    fail(option,
         fmt::format("more than {} settings; a larger STEP makes them fewer", Varied::kMostValues));
  }
  std::vector<std::string> values;
  for (unsigned long long i = 0; i <= steps; ++i) {
    values.push_back(std::to_string(least + static_cast<long long>(i) * step));
  }
  return values;
}

std::vector<std::string> list_of(const std::string& option, const std::string& text) {
  std::vector<std::string> values = parts_of(text, ',');
  std::set<std::string> seen;
  for (const std::string& value : values) {
    if (value.empty()) fail(option, "an empty value");
    if (!seen.insert(value).second) fail(option, fmt::format("{} is there twice", value));
  }
  return values;
}

std::vector<double> ascending(const std::vector<std::string>& values) {
  std::vector<double> numbers;
  for (const std::string& value : values) {
    const auto number = number_in<double>(value);
    if (!number || (!numbers.empty() && *number <= numbers.back())) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// One that every command has (own_folder.h), unless it is varied.
bool is_own_folder(const std::string& name) { return "{" + name + "}" == kOwnFolder; }

// The word with every {name} replaced; {{name}} is {name} itself, and other braces are nobody's
// business.
std::string replaced(const std::string& word,
                     const std::function<std::string(const std::string&)>& value_of) {
  std::string text;
  for (std::size_t at = 0; at < word.size();) {
    const bool doubled = word.compare(at, 2, "{{") == 0;
    const std::size_t begin = at + (doubled ? 2 : 1);
    std::size_t end = begin;
    while (end < word.size() && in_name(word[end])) ++end;
    const bool is_name = word[at] == '{' && end > begin && begins_name(word[begin]) &&
                         word.compare(end, doubled ? 2 : 1, doubled ? "}}" : "}") == 0;
    if (!is_name) {
      text += word[at++];
    } else if (doubled) {
      text += word.substr(at + 1, end - at);
      at = end + 2;
    } else {
      text += value_of(word.substr(begin, end - begin));
      at = end + 1;
    }
  }
  return text;
}

// Where the path of that file begins in a word of the command: "train.yaml", "--config=train.yaml".
std::optional<std::size_t> path_in(const std::string& word, const std::string& file) {
  std::size_t begin = 0;
  do {
    const std::string path = word.substr(begin);
    std::error_code none;
    if (path == file || fs::equivalent(path, file, none)) return begin;
    begin = word.find('=', begin) + 1;
  } while (begin != 0);
  return {};
}

}  // namespace

nlohmann::ordered_json Varied::json_value(std::size_t index) const {
  const std::string& value = values[index];
  if (const auto whole = number_in<long long>(value)) return *whole;
  if (const auto number = number_in<double>(value)) return *number;
  return value;
}

Varied read_varied(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    fail(text, "expected NAME=MIN:MAX, NAME=MIN:MAX:STEP or NAME=A,B,C");
  }
  Varied varied;
  varied.name = text.substr(0, equals);
  const std::string values = varied.text = text.substr(equals + 1);
  varied.values = values.find(':') != std::string::npos && values.find(',') == std::string::npos
                      ? range_of(text, values)
                      : list_of(text, values);
  varied.numbers = ascending(varied.values);
  if (const std::size_t colon = varied.name.rfind(':'); colon != std::string::npos) {
    varied.file = varied.name.substr(0, colon);
    varied.key = varied.name.substr(colon + 1);
    if (varied.file.empty() || varied.key.empty()) fail(text, "expected FILE:KEY before the =");
  } else if (!begins_name(varied.name[0]) ||
             !std::all_of(varied.name.begin(), varied.name.end(), in_name)) {
    fail(text, fmt::format("\"{}\" cannot be a name: letters, digits, \"-\", \"_\" and \".\" can",
                           varied.name));
  }
  return varied;
}

std::string text_of(const std::vector<Varied>& varied, const Setting& setting) {
  std::string text;
  for (std::size_t i = 0; i < varied.size(); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ",
                        varied[i].file.empty() ? varied[i].name : varied[i].key,
                        varied[i].values[setting[i]]);
  }
  return text;
}

VariedCommand::VariedCommand(std::vector<std::string> words, std::vector<Varied> varied)
    : words_(std::move(words)), varied_(std::move(varied)) {
  check_names();
  read_files();
}

void VariedCommand::check_names() const {
  std::set<std::string> names;
  for (const Varied& each : varied_) {
    if (!names.insert(each.name).second) fail(each.name, "it is varied twice");
  }
  std::set<std::string> used;
  for (const std::string& word : words_) {
    replaced(word, [&](const std::string& name) {
      const auto varied = std::find_if(varied_.begin(), varied_.end(), [&](const Varied& each) {
        return each.file.empty() && each.name == name;
      });
      if (varied == varied_.end() && is_own_folder(name)) return name;
      if (varied == varied_.end()) {
        throw InputError(fmt::format(
            "the command has {{{0}}}, and nothing varies it: --vary {0}=MIN:MAX, or {{{{{0}}}}} "
            "where the program is to have it as it is",
            name));
      }
      used.insert(name);
      return name;
    });
  }
  for (const Varied& each : varied_) {
    if (each.file.empty() && used.count(each.name) == 0) {
      fail(each.name, fmt::format("the command has no {{{}}}", each.name));
    }
  }
}

void VariedCommand::read_files() {
  for (std::size_t i = 0; i < varied_.size(); ++i) {
    const Varied& each = varied_[i];
    if (each.file.empty()) continue;
    auto file = std::find_if(files_.begin(), files_.end(),
                             [&](const File& known) { return known.path == each.file; });
    if (file == files_.end()) {
      file = files_.insert(files_.end(), File{each.file, read_file(each.file), {}});
    }
    file->varied.push_back(i);
    (void)with_value(each.file, file->text, each.key, each.values.front());
    if (std::none_of(words_.begin(), words_.end(), [&](const std::string& word) {
          return path_in(word, each.file).has_value();
        })) {
      fail(each.name, "the command does not name " + each.file);
    }
  }
}

std::vector<std::string> VariedCommand::with(const Setting& setting) const {
  std::vector<std::string> words;
  for (const std::string& word : words_) {
    words.push_back(replaced(word, [&](const std::string& name) {
      std::size_t i = 0;
      while (i < varied_.size() && (!varied_[i].file.empty() || varied_[i].name != name)) ++i;
      return i < varied_.size() ? varied_[i].values[setting[i]] : std::string(kOwnFolder);
    }));
  }
  return words;
}

std::vector<std::string> VariedCommand::with(const Setting& setting, const fs::path& folder) const {
  std::vector<std::string> words = with_own_folder(with(setting), folder);
  for (std::size_t n = 0; n < files_.size(); ++n) {
    const File& file = files_[n];
    std::string text = file.text;
    for (const std::size_t i : file.varied) {
      text = with_value(file.path, text, varied_[i].key, varied_[i].values[setting[i]]);
    }
    // In a folder of its own: it keeps its name, which programs may read.
    const fs::path copy = folder / fmt::format("file{}", n) / fs::path(file.path).filename();
    fs::create_directories(copy.parent_path());
    write_file(copy, text);
    for (std::string& word : words) {
      if (const auto begin = path_in(word, file.path)) {
        word = word.substr(0, *begin) + copy.string();
      }
    }
  }
  return words;
}

}  // namespace gapless::tools
