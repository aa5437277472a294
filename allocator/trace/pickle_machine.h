// PickleMachine: the stack machine that a pickle is a program for.
//
//   stack   [ root | "segments" | [...] | "device_traces" | [] | [] | {event} | {event} ]
//                                          key of lists     |    |   elements
//                                                           |    a list whose elements are left out
//                                                           the list of lists
//
// Elements are told by where they stand on the stack while they are made, before the lists know
// where they belong. That holds for what Python's own pickler writes. Where anything reaches for
// what is left out in another way, or changes what may have been looked at, the pickle is tangled,
// and is read as a whole.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/base/byte_source.h"
#include "allocator/base/read_budget.h"
#include "allocator/trace/pickle_runs.h"
#include "allocator/trace/pickle_values.h"

namespace gapless {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

class PickleMachine {
 public:
  enum class Mode : std::uint8_t {
    whole,   // all values
    survey,  // elements are checked and counted, but not made
    stream,  // after a survey: elements are made, looked at and let go
  };
  /// Thrown in a survey.
  struct Tangled {};
  using LookAt = std::function<void(std::size_t, std::size_t, const PickleValue&)>;

  PickleMachine(ByteSource& source, ReadBudget& budget, PickleStore& store, Mode mode,
                std::string_view key_of_lists);
  PickleMachine(const PickleMachine&) = delete;
  PickleMachine& operator=(const PickleMachine&) = delete;
  ~PickleMachine() { budget_.give_back(held_bytes_); }

  /// The root, whose values lie in the store. Throws InputError.
  PickleValue run();
  /// Whether elements of lists were left out.
  [[nodiscard]] bool left_out() const { return way_.begun; }
  /// How often each number of the memo was asked for, or kManyUses.
  std::vector<std::uint32_t> take_uses() { return std::move(uses_); }

  /// Streams, with the uses that the survey counted. Throws InputError.
  void look_at_elements(const LookAt& look, const std::vector<std::uint32_t>& uses);

 private:
  using Kind = PickleValue::Kind;
  static constexpr std::size_t kNowhere = SIZE_MAX;
  // Of what is asked for in runs, which are not counted: it stays to the end.
  static constexpr std::uint32_t kManyUses = UINT32_MAX;

  // Where on the stack the way to the elements leads.
  struct Way {
    bool begun = false;
    bool done = false;                // the list of lists was put into the root
    std::size_t lists_at = kNowhere;  // the list of lists
    std::size_t lists_marks = 0;      // how many marks there were when it was made
    std::size_t list_at = kNowhere;   // the list that is filled
    std::size_t list_marks = 0;
    PickleItems* root = nullptr;
    PickleItems* lists = nullptr;
  };

  [[noreturn]] void fail(const std::string& cause) const;
  [[noreturn]] void tangled() const;
  // Apart from where they are called, which is what every opcode runs through.
  [[noreturn, gnu::cold, gnu::noinline]] void nothing_there() const;
  [[noreturn, gnu::cold, gnu::noinline]] void never_set(std::uint64_t index) const;
  [[noreturn, gnu::cold, gnu::noinline]] void out_of_range(std::uint64_t index) const;
  [[noreturn, gnu::cold, gnu::noinline]] void refuse(unsigned char op) const;
  [[nodiscard]] std::string here() const {
    return "byte " + std::to_string(op_ == nullptr ? op_at_ : position_of(op_));
  }
  template <class T>
  void make_room(std::vector<T>& list, std::uint64_t more) {
    if (more > list.capacity() - list.size()) [[unlikely]]
      grow(list, more);
  }
  template <class T>
  [[gnu::noinline]] void grow(std::vector<T>& list, std::uint64_t more);

  [[nodiscard]] std::uint64_t position_of(const char* at) const {
    return piece_at_ + static_cast<std::uint64_t>(at - begin_);
  }
  [[nodiscard]] std::uint64_t position() const { return position_of(at_); }
  [[nodiscard]] std::uint64_t left() const { return size_ - position(); }
  [[noreturn]] void cut_off(std::uint64_t count) const;
  bool next_piece();
  std::string_view take(std::uint64_t count) {
    if (count > static_cast<std::uint64_t>(end_ - at_)) [[unlikely]]
      return take_across(count);
    const std::string_view part(at_, count);
    at_ += count;
    return part;
  }
  std::string_view take_across(std::uint64_t count);
  void skip(std::uint64_t count);
  // Little endian.
  template <class Number>
  Number number() {
    Number value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  // Whether values are made as kinds only.
  [[nodiscard]] bool hollow() const { return mode_ == Mode::survey && way_.list_at != kNowhere; }
  // A new value on the stack, to be filled in its place: one that is put together elsewhere and
  // copied at once waits for its parts.
  PickleValue& pushed() {
    make_room(stack_, 1);
    return stack_.emplace_back();
  }
  void push_integer(std::int64_t integer);
  void push_boolean(bool truth);
  void push_real();
  void push_text(Kind kind, std::uint64_t length);
  void push_long(std::uint64_t length);
  PickleValue pop();
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::size_t pop_mark();
  void drop_to(std::size_t size);

  // A list whose elements are left out, or what it lies in.
  [[nodiscard]] bool on_the_way(const PickleValue& value) const {
    return (value.flags_ & PickleValue::kOnTheWay) != 0 ||
           (value.is_container() && value.items_ == way_.root);
  }
  void begin_way();
  void push_container(Kind kind, std::size_t count);
  void extend(Kind kind, std::size_t count, const char* op);
  void move_into(PickleItems& items, std::size_t first);
  void have_own(PickleItems& items);
  bool fill_by_run();
  void look_at(std::size_t count);
  void leave_way(std::size_t target, std::size_t first);
  void end_way(const PickleValue& root);

  void put(std::uint64_t index);
  void get(std::uint64_t index);
  void dup();
  bool step(unsigned char op);

  ByteSource& source_;
  ReadBudget& budget_;
  PickleStore& store_;
  Mode mode_;
  std::string_view key_of_lists_;
  const LookAt* look_ = nullptr;

  std::uint64_t size_;
  std::uint64_t piece_at_ = 0;  // the place of begin_ in the file
  const char* begin_ = nullptr;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  std::string across_;  // what lies in two pieces

  std::uint64_t held_bytes_ = 0;  // of the machine's own
  const char* op_ = nullptr;      // the opcode that is obeyed, where it is still in the piece
  std::uint64_t op_at_ = 0;       // else where it was
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::vector<PickleValue> memo_;
  std::uint64_t memo_size_ = 0;
  std::vector<std::uint32_t> uses_;
  Way way_;
  PickleRuns runs_;
};

}  // namespace gapless
