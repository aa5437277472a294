// A reader for Python pickles that hold plain data: dict, list, tuple, str, bytes, int, float, bool
// and None, protocols 2 to 5. It never executes anything: an opcode that would import, call or
// build an object is an error that names it.
//
//   b'\x80\x04}\x94\x8c\x01a\x94K\x01s.'   ->  { "a": 1 }
//
// Written here because no library is left to read it: torch's own C++ unpickler knows protocol 2
// only, and PyTorch writes snapshots in protocol 4 or 5.
//
// A recording's events may be gigabytes, of which one at a time is wanted. So the elements of some
// lists can be left out and handed over one by one:
//
//   first reading    {"segments": [...], "device_traces": [[5000000 left out], [0]]}
//                    checks all, and counts how often each number of the memo is asked for
//   second reading   element, element, ...   each is gone after it was looked at, and what the
//                                            memo holds goes where it is asked for the last time
//
// Hostile input is bounded: what values take is held against the file's budget, which readers of
// the document share, lengths are checked against what is left, nesting costs no call stack, and a
// cycle is only a reference that readers with a fixed schema never follow round. A pickle in which
// what is left out hangs together with the rest in another way than Python's own writes it is read
// as a whole.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/byte_source.h"
#include "allocator/base/read_budget.h"
#include "allocator/trace/pickle_values.h"

namespace gapless {

class PickleDocument {
 public:
  /// Reads all values; `name` stands in errors. Throws InputError.
  PickleDocument(std::string bytes, std::string name);
  /// With the elements left out of each list that lies in the list at that key of the root.
  PickleDocument(std::unique_ptr<ByteSource> source, std::string name, std::string key_of_lists);
  PickleDocument(const PickleDocument&) = delete;
  PickleDocument& operator=(const PickleDocument&) = delete;

  [[nodiscard]] const PickleValue& root() const { return root_; }
  [[nodiscard]] const std::string& name() const { return budget_.file(); }
  /// What is left to whoever reads it: one value may be referred to many times.
  [[nodiscard]] ReadBudget& budget() const { return budget_; }

  /// How many elements a list has, with those left out.
  [[nodiscard]] static std::uint64_t elements_of(const PickleValue& list) {
    return list.items().size() + list.container().left_out;
  }
  /// The elements of the lists in the list at that key of the root, in order, with the numbers of
  /// list and element; each is there for as long as the call. Throws InputError.
  using LookAt = std::function<void(std::size_t, std::size_t, const PickleValue&)>;
  void each_element(std::string_view key_of_lists, const LookAt& look) const;

 private:
  mutable ReadBudget budget_;
  std::unique_ptr<ByteSource> source_;
  std::string key_of_lists_;
  std::unique_ptr<PickleStore> store_;
  std::vector<std::uint32_t> uses_;  // of each number of the memo
  bool left_out_ = false;
  PickleValue root_;
};

/// Whether the file's first bytes are a pickle of protocol 2 to 5.
bool looks_like_pickle(std::string_view bytes);

}  // namespace gapless
