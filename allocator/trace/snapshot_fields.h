// SnapshotFields: reads what a snapshot's dicts hold, with the way to each field for errors, and on
// the file's budget.
//
//   fields.need_number(block, "size", "segments[3].blocks[7]")
//     "run.pickle: segments[3].blocks[7]: "size" is missing"
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/trace/pickle.h"
#include "allocator/trace/trace.h"

namespace gapless {

/// Places are texts, or functions that make one. What is looked at is paid for: a pickle may refer
/// to one value many times.
class SnapshotFields {
 public:
  explicit SnapshotFields(const PickleDocument& document)
      : document_(document), budget_(document.budget()) {}

  template <class Place>
  [[noreturn]] void fail(const Place& place, const std::string& cause) const {
    if constexpr (std::invocable<const Place&>) {
      throw InputError(document_.name(), place(), cause);
    } else {
      throw InputError(document_.name(), place, cause);
    }
  }
  [[nodiscard]] ReadBudget& budget() const { return budget_; }

  template <class Place>
  const PickleValue& dict(const PickleValue& value, const Place& place) const {
    if (!value.is_dict()) fail(place, std::string("expected a dict, found ") + value.kind_name());
    return value;
  }
  template <class Place>
  const std::vector<PickleValue>& list(const PickleValue& value, const Place& place) const {
    if (!value.is_list()) fail(place, std::string("expected a list, found ") + value.kind_name());
    return value.items();
  }
  template <class Place>
  const PickleValue* find(const PickleValue& dict, std::string_view key, const Place& place) const {
    budget_.work(1 + dict.items().size(), place);
    return dict.find(key);
  }
  template <class Place>
  const PickleValue& need(const PickleValue& dict, std::string_view key, const Place& place) const {
    const PickleValue* value = find(dict, key, place);
    if (value == nullptr) fail(place, "\"" + std::string(key) + "\" is missing");
    return *value;
  }
  template <class Place>
  std::optional<std::uint64_t> number(const PickleValue& dict, std::string_view key,
                                      const Place& place) const {
    const PickleValue* value = find(dict, key, place);
    if (value == nullptr || value->is_none()) return {};
    if (!value->is_integer()) {
      fail(field(place, key), std::string("expected an int, found ") + value->kind_name());
    }
    return static_cast<std::uint64_t>(value->integer());
  }
  template <class Place>
  std::uint64_t need_number(const PickleValue& dict, std::string_view key,
                            const Place& place) const {
    const auto value = number(dict, key, place);
    if (!value) fail(place, "\"" + std::string(key) + "\" is missing");
    return *value;
  }
  /// A size of memory, of which there is at most so much.
  template <class Place>
  void check_size(std::uint64_t bytes, std::string_view key, const Place& place) const {
    if (bytes <= kMostTraceBytes) return;
    const auto number = static_cast<std::int64_t>(bytes);  // a negative one, or a very large one
    fail(field(place, key), (number < 0 ? std::to_string(number) + " bytes" : format_bytes(bytes)) +
                                ": no GPU has memory of that size");
  }
  template <class Place>
  std::string_view text(const PickleValue& dict, std::string_view key, const Place& place) const {
    const PickleValue* value = find(dict, key, place);
    return value != nullptr && value->is_text() ? value->text() : std::string_view();
  }

  // "(0, 1)" of a pair of ints; empty where there is none.
  template <class Place>
  std::string pool(const PickleValue& dict, const Place& place) const {
    for (const std::string_view key : {"segment_pool_id", "pool_id"}) {
      const PickleValue* value = find(dict, key, place);
      if (value == nullptr || !value->is_list() || value->items().size() != 2) continue;
      const auto& pair = value->items();
      if (!pair[0].is_integer() || !pair[1].is_integer()) continue;
      return "(" + std::to_string(pair[0].integer()) + ", " + std::to_string(pair[1].integer()) +
             ")";
    }
    return {};
  }

 private:
  template <class Place>
  static std::string field(const Place& place, std::string_view key) {
    if constexpr (std::invocable<const Place&>) {
      return place() + "." + std::string(key);
    } else {
      return std::string(place) + "." + std::string(key);
    }
  }

  const PickleDocument& document_;
  ReadBudget& budget_;
};

}  // namespace gapless
