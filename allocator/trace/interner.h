// Interner: gives a small number to each of a few values, on a file's budget.
//
//   "(0, 1)" -> 1    "(0, 7)" -> 2    "(0, 1)" -> 1
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "allocator/base/read_budget.h"

namespace gapless {

/// What an unordered_map takes for one more entry of that size.
constexpr std::uint64_t node_bytes(std::size_t entry) {
  return ReadBudget::allocated(2 * sizeof(void*) + entry) + 2 * sizeof(void*);
}

/// Keys that are views point to where the values came
// from, which outlives this.
template <class Value, class Key = Value>
class Interner {
 public:
  Interner(std::vector<Value>& values, std::size_t most, ReadBudget& budget)
      : values_(values), most_(most), budget_(budget) {
    for (std::size_t i = 0; i < values.size(); ++i) numbers_.emplace(values[i], i);
  }
  template <class Place>
  std::optional<std::size_t> operator()(const Key& key, const Place& place) {
    if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
    if (values_.size() >= most_) return {};
    std::uint64_t bytes = node_bytes(sizeof(std::pair<const Key, std::size_t>));
    if constexpr (requires { key.size(); }) bytes += ReadBudget::allocated_text(key.size());
    budget_.hold(bytes, place);
    budget_.make_room(values_, 1, place);
    numbers_.emplace(key, values_.size());
    values_.emplace_back(key);
    return values_.size() - 1;
  }

 private:
  std::vector<Value>& values_;
  std::size_t most_;
  ReadBudget& budget_;
  std::unordered_map<Key, std::size_t> numbers_;
};

}  // namespace gapless
