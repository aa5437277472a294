// A reader for Python pickles that hold plain data: dict, list, tuple, str, bytes, int, float, bool
// and None, protocols 2 to 5. It never executes anything: an opcode that would import, call or
// build an object is an error that names it.
//
//   b'\x80\x04}\x94\x8c\x01a\x94K\x01s.'   ->  { "a": 1 }
//
// Written here because no library is left to read it: torch's own C++ unpickler knows protocol 2
// only, and PyTorch writes snapshots in protocol 4 or 5.
//
// Hostile input is bounded: what values take is held against the file's budget, which readers of
// the document share, lengths are checked against what is left, nesting costs no call stack, and a
// cycle is only a reference that readers with a fixed schema never follow round.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/read_budget.h"

namespace gapless {

class PickleValue {
 public:
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, bytes, list, tuple, dict };

  PickleValue() = default;

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is_none() const { return kind_ == Kind::none; }
  [[nodiscard]] bool is_list() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  [[nodiscard]] bool is_dict() const { return kind_ == Kind::dict; }
  [[nodiscard]] bool is_integer() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  [[nodiscard]] bool is_text() const { return kind_ == Kind::text; }

  /// Two's complement: integers from -2^63 to 2^64 - 1.
  [[nodiscard]] std::int64_t integer() const { return integer_; }
  [[nodiscard]] double real() const { return real_; }
  [[nodiscard]] std::string_view text() const { return {text_, size_}; }

  /// The elements of a list or tuple; keys and values in turn of a dict.
  [[nodiscard]] const std::vector<PickleValue>& items() const { return *items_; }
  /// The value at a text key of a dict; nullptr where there is none.
  [[nodiscard]] const PickleValue* find(std::string_view key) const;

  /// "int", "list", ...: Python's name for the kind.
  [[nodiscard]] const char* kind_name() const;

 private:
  friend class PickleMachine;
  Kind kind_ = Kind::none;
  std::uint32_t size_ = 0;
  union {
    std::int64_t integer_ = 0;
    double real_;
    const char* text_;
    std::vector<PickleValue>* items_;
  };
};

/// A pickle with all its values. Texts point into the file's bytes.
class PickleDocument {
 public:
  /// Reads `bytes`; `name` stands in errors. Throws InputError.
  PickleDocument(std::string bytes, std::string name);
  PickleDocument(const PickleDocument&) = delete;
  PickleDocument& operator=(const PickleDocument&) = delete;

  [[nodiscard]] const PickleValue& root() const { return root_; }
  [[nodiscard]] const std::string& name() const { return budget_.file(); }
  /// What is left to whoever reads it: one value may be referred to many times.
  [[nodiscard]] ReadBudget& budget() const { return budget_; }

 private:
  friend class PickleMachine;
  mutable ReadBudget budget_;
  std::string bytes_;
  std::deque<std::vector<PickleValue>> containers_;
  PickleValue root_;
};

/// Whether the file's first bytes are a pickle of protocol 2 to 5.
bool looks_like_pickle(std::string_view bytes);

}  // namespace gapless
