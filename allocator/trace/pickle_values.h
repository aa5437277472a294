// PickleValue: a value of a pickle, and PickleStore: where texts and containers lie.
//
//   [ list | items ----> { references 1 | values: [text "a"], [dict] } ]    16 bytes a value
//
// Texts and containers count who refers to them and are used again when nobody does, so that the
// values of a large file can come and go. A cycle stays until its store goes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/read_budget.h"

namespace gapless {

class PickleValue;

struct PickleText {
  std::uint64_t references = 0;
  std::uint64_t held_bytes = 0;  // of the budget
  std::string bytes;
};

struct PickleItems {
  std::uint64_t references = 0;
  std::uint64_t left_out = 0;  // elements that are not in `values` (PickleDocument::each_element)
  /// For readers: what they know this container by; 0 in one that nobody has looked at.
  mutable std::uint32_t number = 0;
  /// Whose values this list has, of one that was written out again (PickleRuns); its own then has
  /// none.
  PickleItems* same = nullptr;
  std::vector<PickleValue> values;
};

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
  [[nodiscard]] std::string_view text() const { return text_->bytes; }

  /// The elements of a list or tuple; keys and values in turn of a dict.
  [[nodiscard]] const std::vector<PickleValue>& items() const { return container().values; }
  /// The container itself, which is the same wherever it is referred to; of lists that were written
  /// out again the first one.
  [[nodiscard]] const PickleItems& container() const {
    return items_->same != nullptr ? *items_->same : *items_;
  }
  /// The value at a text key of a dict; nullptr where there is none.
  [[nodiscard]] const PickleValue* find(std::string_view key) const;

  /// "int", "list", ...: Python's name for the kind.
  [[nodiscard]] const char* kind_name() const;

 private:
  friend class PickleMachine;
  friend class PickleStore;

  // What only the machine knows of it.
  static constexpr std::uint8_t kFetched = 1;   // it came out of the memo
  static constexpr std::uint8_t kHollow = 2;    // its kind is known, and no more
  static constexpr std::uint8_t kOnTheWay = 8;  // a list whose elements are left out, or of such
  static constexpr std::uint8_t kKept = 4;      // it stands in the memo

  [[nodiscard]] bool is_hollow() const { return (flags_ & kHollow) != 0; }
  [[nodiscard]] bool holds_text() const { return kind_ == Kind::text || kind_ == Kind::bytes; }
  [[nodiscard]] bool is_container() const { return kind_ >= Kind::list; }

  Kind kind_ = Kind::none;
  std::uint8_t flags_ = 0;
  std::uint32_t size_ = 0;  // of a text
  union {
    std::int64_t integer_ = 0;
    double real_;
    PickleText* text_;
    PickleItems* items_;
  };
};

class PickleStore {
 public:
  explicit PickleStore(ReadBudget& budget) : budget_(budget) {}
  PickleStore(const PickleStore&) = delete;
  PickleStore& operator=(const PickleStore&) = delete;
  /// What it held is free again.
  ~PickleStore() { budget_.give_back(held_bytes_); }

  /// Referred to once. Places are those of ReadBudget.
  template <class Place>
  PickleText* text(std::string_view bytes, const Place& place) {
    PickleText* const text = take(texts_, free_texts_, place);
    if (bytes.size() > text->bytes.capacity()) {
      drop_capacity(*text);
      const std::uint64_t more = ReadBudget::allocated_text(std::max(bytes.size(), kLeastText));
      hold(more, place);
      text->held_bytes = more;
    }
    text->bytes.assign(bytes);
    return text;
  }
  template <class Place>
  PickleItems* items(const Place& place) {
    return take(items_, free_items_, place);
  }
  /// Room for so many more.
  template <class Place>
  void make_room(PickleItems& items, std::uint64_t more, const Place& place) {
    if (more <= items.values.capacity() - items.values.size()) [[likely]]
      return;
    const std::uint64_t before = budget_.held_bytes();
    budget_.make_room(items.values, more, place);
    held_bytes_ += budget_.held_bytes() - before;
  }

  static void refer_to(const PickleValue& value) {
    if (value.kind_ < PickleValue::Kind::text || value.is_hollow()) return;
    ++(value.is_container() ? value.items_->references : value.text_->references);
  }
  /// One refers to it no more.
  void let_go(const PickleValue& value) {
    if (value.kind_ < PickleValue::Kind::text || value.is_hollow()) return;
    if (value.is_container()) {
      let_go(value.items_);
    } else if (--value.text_->references == 0) {
      recycle(value.text_);
    }
  }

  /// Likewise of a container.
  void let_go(PickleItems* items) {
    if (--items->references == 0) recycle(items);
  }

  /// What hollow values point to.
  PickleText& hollow_text() { return hollow_text_; }
  PickleItems& hollow_items() { return hollow_items_; }

 private:
  // A text or container keeps that many bytes or values to be used again.
  static constexpr std::size_t kKeptCapacity = 256;
  // A std::string that grows out of itself has room for so many.
  static constexpr std::size_t kLeastText = 30;

  template <class Place>
  void hold(std::uint64_t bytes, const Place& place) {
    budget_.hold(bytes, place);
    held_bytes_ += bytes;
  }
  void give_back(std::uint64_t bytes) {
    budget_.give_back(bytes);
    held_bytes_ -= bytes;
  }
  template <class Node, class Place>
  Node* take(std::deque<Node>& all, std::vector<Node*>& free, const Place& place) {
    Node* node = nullptr;
    if (!free.empty()) {
      node = free.back();
      free.pop_back();
    } else {
      // Beside the node its places in the list of free ones and of those that go (recycle).
      constexpr std::uint64_t kEach = sizeof(Node) + 4 * sizeof(void*);
      hold(kEach, place);
      node = &all.emplace_back();
    }
    node->references = 1;
    return node;
  }
  void recycle(PickleText* text);
  void recycle(PickleItems* items);
  void drop_capacity(PickleText& text);

  ReadBudget& budget_;
  std::uint64_t held_bytes_ = 0;
  std::deque<PickleText> texts_;
  std::deque<PickleItems> items_;
  std::vector<PickleText*> free_texts_;
  std::vector<PickleItems*> free_items_;
  std::vector<PickleItems*> going_;
  PickleText hollow_text_;
  PickleItems hollow_items_;
};

}  // namespace gapless
