#include "allocator/trace/pickle_machine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "allocator/base/error.h"
#include "allocator/trace/pickle_opcodes.h"

namespace gapless {

PickleMachine::PickleMachine(ByteSource& source, ReadBudget& budget, PickleStore& store, Mode mode,
                             std::string_view key_of_lists)
    : source_(source),
      budget_(budget),
      store_(store),
      mode_(mode),
      key_of_lists_(key_of_lists),
      size_(source.size()),
      runs_(budget, store) {}

void PickleMachine::look_at_elements(const LookAt& look, const std::vector<std::uint32_t>& uses) {
  look_ = &look;
  make_room(uses_, uses.size());
  uses_ = uses;
  run();
}

void PickleMachine::fail(const std::string& cause) const {
  throw InputError(budget_.file(), here(),
                   mode_ == Mode::stream ? "the file changed while it was read" : cause);
}

void PickleMachine::nothing_there() const { fail("the stack is empty"); }

void PickleMachine::tangled() const {
  if (mode_ == Mode::survey) throw Tangled();
  fail("");  // else the survey had found it
}

template <class T>
void PickleMachine::grow(std::vector<T>& list, std::uint64_t more) {
  const std::uint64_t before = budget_.held_bytes();
  budget_.make_room(list, more, [this] { return here(); });
  held_bytes_ += budget_.held_bytes() - before;
}

// --- bytes -------------------------------------------------------------------------------------

void PickleMachine::cut_off(std::uint64_t count) const {
  fail("the file is cut off: the pickle ends in the middle (" + std::to_string(count) +
       " more bytes expected, " + std::to_string(left()) + " left)");
}

bool PickleMachine::next_piece() {
  if (op_ != nullptr) op_at_ = position_of(std::exchange(op_, nullptr));
  piece_at_ = position();
  const std::string_view piece = source_.next();
  begin_ = at_ = piece.data();
  end_ = begin_ + piece.size();
  return !piece.empty();
}

std::string_view PickleMachine::take_across(std::uint64_t count) {
  if (count > left()) cut_off(count);
  if (at_ == end_ && next_piece() && count <= static_cast<std::uint64_t>(end_ - at_)) {
    return take(count);
  }
  if (count > across_.capacity()) {
    const std::uint64_t more = ReadBudget::allocated_text(2 * count);
    budget_.hold(more, [this] { return here(); });
    held_bytes_ += more;
  }
  across_.clear();
  while (across_.size() < count) {
    if (at_ == end_ && !next_piece()) fail("the file changed while it was read");
    const std::uint64_t part =
        std::min<std::uint64_t>(count - across_.size(), static_cast<std::uint64_t>(end_ - at_));
    across_.append(at_, part);
    at_ += part;
  }
  return across_;
}

void PickleMachine::skip(std::uint64_t count) {
  if (count > left()) cut_off(count);
  while (count > 0) {
    if (at_ == end_ && !next_piece()) fail("the file changed while it was read");
    const std::uint64_t part =
        std::min<std::uint64_t>(count, static_cast<std::uint64_t>(end_ - at_));
    at_ += part;
    count -= part;
  }
}

// --- values ------------------------------------------------------------------------------------

void PickleMachine::push_integer(std::int64_t integer) {
  PickleValue& value = pushed();
  value.kind_ = Kind::integer;
  value.integer_ = integer;
}

void PickleMachine::push_boolean(bool truth) {
  PickleValue& value = pushed();
  value.kind_ = Kind::boolean;
  value.integer_ = truth ? 1 : 0;
}

void PickleMachine::push_real() {
  const std::string_view raw = take(8);
  std::uint64_t bits = 0;
  for (const char c : raw) bits = bits << 8 | static_cast<unsigned char>(c);
  PickleValue& value = pushed();
  value.kind_ = Kind::real;
  value.real_ = std::bit_cast<double>(bits);
}

void PickleMachine::push_text(Kind kind, std::uint64_t length) {
  if (length > UINT32_MAX) fail("a text of " + std::to_string(length) + " bytes");
  PickleText* text = &store_.hollow_text();
  if (hollow()) {
    skip(length);
  } else {
    text = store_.text(take(length), [this] { return here(); });
  }
  PickleValue& value = pushed();
  value.kind_ = kind;
  value.flags_ = hollow() ? PickleValue::kHollow : 0;
  value.size_ = static_cast<std::uint32_t>(length);
  value.text_ = text;
}

// An integer of any length, little endian, two's complement.
void PickleMachine::push_long(std::uint64_t length) {
  const std::string_view raw = take(length);
  std::uint64_t low = 0;
  const bool negative = !raw.empty() && (static_cast<unsigned char>(raw.back()) & 0x80) != 0;
  for (std::size_t i = raw.size(); i-- > 0;) {
    const auto byte = static_cast<unsigned char>(raw[i]);
    if (i < 8) {
      low = low << 8 | byte;
    } else if (byte != (negative ? 0xff : 0)) {
      fail("an integer of more than 64 bits");
    }
  }
  if (negative && length < 8) low |= ~std::uint64_t{0} << (8 * length);
  push_integer(static_cast<std::int64_t>(low));
}

// What is popped goes with its reference to whoever pops it.
PickleValue PickleMachine::pop() {
  if (stack_.size() <= floor()) nothing_there();
  const PickleValue value = stack_.back();
  stack_.pop_back();
  leave_way(kNowhere, stack_.size());
  return value;
}

std::size_t PickleMachine::pop_mark() {
  if (marks_.empty()) fail("no MARK to go back to");
  const std::size_t mark = marks_.back();
  marks_.pop_back();
  return mark;
}

void PickleMachine::drop_to(std::size_t size) {
  leave_way(kNowhere, size);
  for (std::size_t i = size; i < stack_.size(); ++i) store_.let_go(stack_[i]);
  stack_.resize(size);
}

// A container of the `count` topmost values.
void PickleMachine::push_container(Kind kind, std::size_t count) {
  if (stack_.size() - floor() < count) nothing_there();
  const std::size_t first = stack_.size() - count;
  leave_way(kNowhere, first);
  PickleValue value;
  value.kind_ = kind;
  if (kind == Kind::list && count == 0 && mode_ != Mode::whole) begin_way();
  if (hollow() && way_.list_at != first) {
    value.flags_ = PickleValue::kHollow;
    value.items_ = &store_.hollow_items();
  } else {
    value.items_ = store_.items([this] { return here(); });
    if (way_.list_at == first || way_.lists_at == first) value.flags_ = PickleValue::kOnTheWay;
    if (way_.lists_at == first) way_.lists = value.items_;
    if (count != 0) {
      store_.make_room(*value.items_, count, [this] { return here(); });
      value.items_->values.assign(stack_.begin() + static_cast<std::ptrdiff_t>(first),
                                  stack_.end());
    }
  }
  stack_.resize(first);
  pushed() = value;
}

// Appends the `count` topmost values to the container below them.
void PickleMachine::extend(Kind kind, std::size_t count, const char* op) {
  if (stack_.size() - floor() < count + 1) nothing_there();
  const std::size_t first = stack_.size() - count;
  const PickleValue target = stack_[first - 1];
  if (target.kind_ != kind) fail(std::string(op) + " to a " + target.kind_name());
  if (kind == Kind::dict && count % 2 != 0) fail("a dict key without a value");
  if (way_.begun) {
    // What may have been looked at, or is elsewhere, is not what it was.
    if ((target.flags_ & PickleValue::kFetched) != 0) tangled();
    if (first - 1 == way_.list_at) {
      look_at(count);
      return;
    }
    leave_way(first - 1, first);
  }
  if (!target.is_hollow()) {
    have_own(*target.items_);
    move_into(*target.items_, first);
  }
  stack_.resize(first);
}

// --- the memo ----------------------------------------------------------------------------------

void PickleMachine::out_of_range(std::uint64_t index) const {
  fail("memo number " + std::to_string(index) + " out of range");
}

void PickleMachine::put(std::uint64_t index) {
  // Pickles number what they memoize; a number beyond the bytes so far is an attack on memory.
  if (index > position()) [[unlikely]]
    out_of_range(index);
  if (stack_.size() <= floor()) nothing_there();
  if (index < memo_size_) runs_.forget();
  memo_size_ = std::max(memo_size_, index + 1);
  if (mode_ == Mode::stream && (index >= uses_.size() || uses_[index] == 0)) return;
  if (index >= memo_.size()) {
    make_room(memo_, index + 1 - memo_.size());
    memo_.resize(index + 1);
    if (mode_ == Mode::survey) {
      make_room(uses_, index + 1 - uses_.size());
      uses_.resize(index + 1);
    }
  }
  PickleValue& kept = memo_[index];
  PickleStore::refer_to(stack_.back());
  store_.let_go(kept);
  kept = stack_.back();
  kept.flags_ |= PickleValue::kKept;
}

void PickleMachine::never_set(std::uint64_t index) const {
  fail("memo number " + std::to_string(index) + " was never set");
}

void PickleMachine::get(std::uint64_t index) {
  if (index >= memo_.size() || (memo_[index].flags_ & PickleValue::kKept) == 0) [[unlikely]]
    never_set(index);
  PickleValue& value = pushed();
  PickleValue& kept = memo_[index];
  if (on_the_way(kept)) tangled();
  value.kind_ = kept.kind_;
  value.size_ = kept.size_;
  value.integer_ = kept.integer_;  // or whatever stands there
  value.flags_ =
      static_cast<std::uint8_t>((kept.flags_ & ~PickleValue::kKept) | PickleValue::kFetched);
  if (mode_ == Mode::stream) {
    if (uses_[index] != kManyUses && --uses_[index] == 0) {
      kept = {};  // whose reference is the stack's now
      return;
    }
  } else if (mode_ == Mode::survey) {
    if (uses_[index] != kManyUses) ++uses_[index];
    if (hollow()) {  // what it holds does not matter here
      if (value.holds_text()) value.text_ = &store_.hollow_text();
      if (value.is_container()) value.items_ = &store_.hollow_items();
      value.flags_ = PickleValue::kFetched | PickleValue::kHollow;
      return;
    }
    if (value.is_hollow()) tangled();
  }
  PickleStore::refer_to(value);
}

void PickleMachine::dup() {
  PickleValue value = stack_.back();
  if (on_the_way(value)) tangled();
  value.flags_ |= PickleValue::kFetched;
  PickleStore::refer_to(value);
  pushed() = value;
}

PickleValue PickleMachine::run() {
  constexpr std::ptrdiff_t kLongBinGetBytes = 5;
  if (size_ == 0) fail("the file is empty");
  for (bool stopped = false; !stopped;) {
    // Most of a recording is frames of stacks, which were there before.
    while (end_ - at_ >= kLongBinGetBytes &&
           static_cast<unsigned char>(*at_) == pickle_opcodes::kLongBinGet) {
      op_ = at_++;
      get(number<std::uint32_t>());
    }
    if (way_.list_at != kNowhere && at_ != end_ &&
        static_cast<unsigned char>(*at_) == pickle_opcodes::kMark && fill_by_run()) {
      continue;
    }
    if (at_ == end_ && !next_piece()) {
      op_at_ = position();
      cut_off(1);
    }
    op_ = at_;
    stopped = step(static_cast<unsigned char>(take(1)[0]));
  }
  const PickleValue root = pop();
  end_way(root);
  return root;
}

// --- opcodes -----------------------------------------------------------------------------------

void PickleMachine::refuse(unsigned char op) const {
  if (const char* name = pickle_opcodes::refused(op); name != nullptr) {
    fail(std::string("the pickle wants to run code (opcode ") + name +
         "); a memory snapshot holds plain data only");
  }
  static constexpr char kHex[] = "0123456789abcdef";
  fail(std::string("unknown opcode 0x") + kHex[op >> 4] + kHex[op & 15] +
       "; this is no pickle of plain data");
}

// Obeys one opcode; true at the end.
bool PickleMachine::step(unsigned char op) {
  using enum pickle_opcodes::Op;
  switch (op) {
    case kProto: {
      const std::uint64_t version = number<std::uint8_t>();
      if (version < 2 || version > 5) {
        fail("pickle protocol " + std::to_string(version) + "; 2 to 5 are read");
      }
      return false;
    }
    case kFrame:
      if (const std::uint64_t length = number<std::uint64_t>(); length > left()) {
        fail("the file is cut off: a frame of " + std::to_string(length) + " bytes, " +
             std::to_string(left()) + " left");
      }
      return false;
    case kStop:
      return true;
    case kMark:
      make_room(marks_, 1);
      marks_.push_back(stack_.size());
      return false;
    case kPop:
      if (!marks_.empty() && stack_.size() == marks_.back()) {
        marks_.pop_back();
      } else {
        store_.let_go(pop());
      }
      return false;
    case kPopMark:
      drop_to(pop_mark());
      return false;
    case kDup:
      if (stack_.size() <= floor()) nothing_there();
      dup();
      return false;
    case kNone:
      pushed();
      return false;
    case kNewTrue:
      push_boolean(true);
      return false;
    case kNewFalse:
      push_boolean(false);
      return false;
    case kBinInt:
      push_integer(number<std::int32_t>());
      return false;
    case kBinInt1:
      push_integer(number<std::uint8_t>());
      return false;
    case kBinInt2:
      push_integer(number<std::uint16_t>());
      return false;
    case kLong1:
      push_long(number<std::uint8_t>());
      return false;
    case kLong4:
      push_long(number<std::uint32_t>());
      return false;
    case kBinFloat:
      push_real();
      return false;
    case kShortBinUnicode:
      push_text(Kind::text, number<std::uint8_t>());
      return false;
    case kBinUnicode:
      push_text(Kind::text, number<std::uint32_t>());
      return false;
    case kBinUnicode8:
      push_text(Kind::text, number<std::uint64_t>());
      return false;
    case kShortBinBytes:
      push_text(Kind::bytes, number<std::uint8_t>());
      return false;
    case kBinBytes:
      push_text(Kind::bytes, number<std::uint32_t>());
      return false;
    case kBinBytes8:
    case kByteArray8:
      push_text(Kind::bytes, number<std::uint64_t>());
      return false;
    case kEmptyList:
      push_container(Kind::list, 0);
      return false;
    case kEmptyDict:
      push_container(Kind::dict, 0);
      return false;
    case kEmptyTuple:
      push_container(Kind::tuple, 0);
      return false;
    case kTuple1:
      push_container(Kind::tuple, 1);
      return false;
    case kTuple2:
      push_container(Kind::tuple, 2);
      return false;
    case kTuple3:
      push_container(Kind::tuple, 3);
      return false;
    case kTuple:
    case kList:
    case kDict: {
      const std::size_t count = stack_.size() - pop_mark();
      if (op == kDict && count % 2 != 0) fail("a dict key without a value");
      push_container(op == kTuple ? Kind::tuple : op == kList ? Kind::list : Kind::dict, count);
      return false;
    }
    case kAppend:
      extend(Kind::list, 1, "APPEND");
      return false;
    case kAppends: {
      const std::size_t mark = pop_mark();
      extend(Kind::list, stack_.size() - mark, "APPENDS");
      return false;
    }
    case kSetItem:
      extend(Kind::dict, 2, "SETITEM");
      return false;
    case kSetItems: {
      const std::size_t mark = pop_mark();
      extend(Kind::dict, stack_.size() - mark, "SETITEMS");
      return false;
    }
    case kBinPut:
      put(number<std::uint8_t>());
      return false;
    case kLongBinPut:
      put(number<std::uint32_t>());
      return false;
    case kMemoize:
      put(memo_size_);
      return false;
    case kBinGet:
      get(number<std::uint8_t>());
      return false;
    case kLongBinGet:
      get(number<std::uint32_t>());
      return false;
    default:
      break;
  }
  refuse(op);
}

}  // namespace gapless
