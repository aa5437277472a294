// PickleRuns: lists that are written out again and again, of values that were there before.
//
//   ]  (  j 17  j 18  j 19  e     the stack of an event: three frames of the memo
//   ]  (  j 17  j 18  j 19  e     of another: the same opcodes, so the same elements
//
// A recording is stacks for the most part. One whose opcodes are known shares its elements with the
// first of them (PickleItems::same), and whoever reads them knows the whole list again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "allocator/base/bytes.h"
#include "allocator/base/read_budget.h"
#include "allocator/trace/interner.h"
#include "allocator/trace/pickle_values.h"

namespace gapless {

class PickleRuns {
 public:
  /// Shorter ones are as soon made again.
  static constexpr std::size_t kLeastBytes = 16;

  PickleRuns(ReadBudget& budget, PickleStore& store) : budget_(budget), store_(store) {}
  PickleRuns(const PickleRuns&) = delete;
  PickleRuns& operator=(const PickleRuns&) = delete;
  ~PickleRuns() { forget(); }

  /// Whether that run was kept; its elements then, or nullptr where they were left out.
  [[nodiscard]] bool find(std::string_view opcodes, PickleItems*& elements) const {
    const auto known = known_.find(opcodes);
    if (known == known_.end()) return false;
    elements = known->second;
    return true;
  }
  /// Refers to the elements once more. Where too many are kept, the others are forgotten first.
  template <class Place>
  void keep(std::string_view opcodes, PickleItems* elements, const Place& place) {
    if (kept_bytes_ + opcodes.size() > kMostBytes) forget();
    const std::uint64_t more =
        ReadBudget::allocated_text(opcodes.size()) + node_bytes(sizeof(Known::value_type));
    budget_.hold(more, place);
    held_bytes_ += more;
    kept_bytes_ += opcodes.size();
    known_.emplace(opcodes, elements);
    if (elements != nullptr) ++elements->references;
  }
  /// A number of the memo means something else from now on.
  void forget();

 private:
  // Of opcodes; beside them stand their elements, 16 bytes for each get of 2 or 5.
  static constexpr std::uint64_t kMostBytes = 16 * MiB;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  using Known = std::unordered_map<std::string, PickleItems*, Hash, std::equal_to<>>;

  ReadBudget& budget_;
  PickleStore& store_;
  Known known_;
  std::uint64_t held_bytes_ = 0;
  std::uint64_t kept_bytes_ = 0;
};

}  // namespace gapless
