#include "allocator/base/json_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "allocator/base/error.h"

namespace gapless {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDepth = 64;
// What nlohmann's values take: in an array that doubles, as an array or object of its own, as a
// member of an object (the node of a map), as a text.
constexpr std::uint64_t kElementBytes = 2 * sizeof(json);
constexpr std::uint64_t kContainerBytes = ReadBudget::allocated(sizeof(json::object_t));
constexpr std::uint64_t kMemberBytes =
    ReadBudget::allocated(32 + sizeof(std::string) + sizeof(json));
constexpr std::uint64_t kTextBytes = ReadBudget::allocated(sizeof(std::string));
// The parser's copies of the word it reads, doubled as they grow.
constexpr std::uint64_t kCopiesOfAWord = 6;

// Goes over a text once before it is parsed, and asks the budget for all that its values will take.
class Estimate {
 public:
  Estimate(std::string_view text, ReadBudget& budget, const std::string& place)
      : text_(text), budget_(budget), place_(place) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      switch (c) {
        case '"':
          end_word();
          skip_text();
          break;
        case '[':
        case '{':
          end_word();
          if (++depth_ > kMostDepth) {
            throw InputError(budget_.file(), here(),
                             "nested more than " + std::to_string(kMostDepth) + " deep");
          }
          add(kElementBytes + kContainerBytes);
          break;
        case ']':
        case '}':
          end_word();
          if (depth_ > 0) --depth_;
          break;
        case ',':
          end_word();
          add(kElementBytes);
          break;
        case ':':
          end_word();
          add(kMemberBytes);
          break;
        default:
          ++word_bytes_;
          break;
      }
    }
    end_word();
    budget_.work(text_.size(), place_);
    // While the text is read.
    budget_.hold(kCopiesOfAWord * longest_word_, place_);
    budget_.give_back(kCopiesOfAWord * longest_word_);
  }

 private:
  std::string here() const { return place_ + ": byte " + std::to_string(at_ - 1); }
  void add(std::uint64_t bytes) {
    budget_.hold(bytes, [&] { return here(); });
  }
  void end_word() { longest_word_ = std::max(longest_word_, std::exchange(word_bytes_, 0)); }
  // To the end of a text whose opening mark was read.
  void skip_text() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    const std::uint64_t bytes = at_ - begin;
    longest_word_ = std::max(longest_word_, bytes);
    add(kTextBytes + ReadBudget::allocated_text(bytes));
    ++at_;
  }

  std::string_view text_;
  ReadBudget& budget_;
  const std::string& place_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::uint64_t word_bytes_ = 0;
  std::uint64_t longest_word_ = 0;
};

std::string kind_of(const json& value) {
  if (value.is_number()) return json_text(value);
  return std::string("of type ") + value.type_name();
}

}  // namespace

json parse_json(std::string_view text, ReadBudget& budget, const std::string& place) {
  Estimate(text, budget, place).run();
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    constexpr std::size_t kShown = 300;  // it quotes the word that it could not read
    throw InputError(budget.file(), place, std::string(error.what()).substr(0, kShown));
  }
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

JsonFields::JsonFields(const json& value, const std::string& file, std::string place)
    : value_(value), file_(file), place_(std::move(place)) {
  if (!value.is_object())
    throw InputError(file_, place_, "expected an object, is " + kind_of(value));
}

std::string JsonFields::place_of(const char* key) const {
  return place_.empty() ? key : place_ + "." + key;
}

void JsonFields::fail(const char* key, const std::string& cause) const {
  throw InputError(file_, place_of(key), cause);
}

const json& JsonFields::at(const char* key) const {
  const auto found = value_.find(key);
  if (found == value_.end()) fail(key, "is missing");
  return *found;
}

std::uint64_t JsonFields::number(const char* key, std::uint64_t most, std::uint64_t least) const {
  const json& value = at(key);
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number >= least && number <= most) return number;
  }
  fail(key, "expected a whole number from " + std::to_string(least) + " to " +
                std::to_string(most) + ", is " + kind_of(value));
}

double JsonFields::real(const char* key) const {
  const json& value = at(key);
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (std::isfinite(number) && number >= 0) return number;
  }
  fail(key, "expected a number from 0 on, is " + kind_of(value));
}

bool JsonFields::flag(const char* key) const {
  const json& value = at(key);
  if (!value.is_boolean()) fail(key, "expected true or false, is " + kind_of(value));
  return value.get<bool>();
}

const std::string& JsonFields::text(const char* key) const {
  const json& value = at(key);
  if (!value.is_string()) fail(key, "expected a text, is " + kind_of(value));
  return value.get_ref<const std::string&>();
}

const json::array_t& JsonFields::list(const char* key, std::uint64_t most) const {
  const json& value = at(key);
  if (!value.is_array()) fail(key, "expected a list, is " + kind_of(value));
  if (value.size() > most) {
    fail(key, "holds " + std::to_string(value.size()) + " values; at most " + std::to_string(most) +
                  " are expected");
  }
  return value.get_ref<const json::array_t&>();
}

}  // namespace gapless
