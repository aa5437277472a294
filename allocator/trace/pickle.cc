#include "allocator/trace/pickle.h"

#include <bit>
#include <cstring>
#include <utility>

#include "allocator/base/error.h"

namespace gapless {
namespace {

// Opcodes by their names in Python's pickletools (documented there, one byte each).
enum Op : unsigned char {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kAppend = 'a',
  kAppends = 'e',
  kDict = 'd',
  kEmptyDict = '}',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kSetItems = 'u',
  kTuple = 't',
  kEmptyTuple = ')',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

// Opcodes that run code or need a registry; never obeyed.
const char* refused(unsigned char op) {
  switch (op) {
    case 'c':
      return "GLOBAL";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 0x81:
      return "NEWOBJ";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x93:
      return "STACK_GLOBAL";
    default:
      return nullptr;
  }
}

}  // namespace

const PickleValue* PickleValue::find(std::string_view key) const {
  if (kind_ != Kind::dict) return nullptr;
  for (std::size_t i = items_->size(); i >= 2; i -= 2) {  // a later key replaces an earlier one
    const PickleValue& name = (*items_)[i - 2];
    if (name.kind_ == Kind::text && name.size_ == key.size() &&
        std::memcmp(name.text_, key.data(), key.size()) == 0) {
      return &(*items_)[i - 1];
    }
  }
  return nullptr;
}

const char* PickleValue::kind_name() const {
  switch (kind_) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::bytes:
      return "bytes";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
  }
  return "?";
}

// The stack machine that a pickle is a program for.
class PickleMachine {
 public:
  explicit PickleMachine(PickleDocument& document)
      : document_(document), budget_(document.budget_), bytes_(document.bytes_) {}

  void run() {
    if (bytes_.empty()) fail("the file is empty");
    for (bool stopped = false; !stopped;) {
      op_at_ = at_;
      const auto op = static_cast<unsigned char>(take(1)[0]);
      ++opcodes_;
      stopped = step(op);
    }
    document_.root_ = pop();
  }

 private:
  using Kind = PickleValue::Kind;

  [[noreturn]] void fail(const std::string& cause) const {
    throw InputError(document_.name(), here(), cause);
  }
  [[nodiscard]] std::string here() const { return "byte " + std::to_string(op_at_); }
  // Room for so many more elements, held against the file's budget.
  template <class T>
  void make_room(std::vector<T>& list, std::uint64_t more) {
    budget_.make_room(list, more, [this] { return here(); });
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      fail("the file is cut off: the pickle ends in the middle (" + std::to_string(count) +
           " more bytes expected, " + std::to_string(bytes_.size() - at_) + " left)");
    }
    const std::string_view part(bytes_.data() + at_, count);
    at_ += count;
    return part;
  }

  std::uint64_t number(std::size_t width) {
    const std::string_view raw = take(width);
    std::uint64_t value = 0;
    for (std::size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[i]);
    return value;
  }

  void push(PickleValue value) {
    make_room(stack_, 1);
    stack_.push_back(value);
  }
  void push_integer(std::int64_t integer) {
    PickleValue value;
    value.kind_ = Kind::integer;
    value.integer_ = integer;
    push(value);
  }
  void push_boolean(bool truth) {
    PickleValue value;
    value.kind_ = Kind::boolean;
    value.integer_ = truth ? 1 : 0;
    push(value);
  }
  void push_text(Kind kind, std::uint64_t length) {
    if (length > UINT32_MAX) fail("a text of " + std::to_string(length) + " bytes");
    const std::string_view text = take(length);
    PickleValue value;
    value.kind_ = kind;
    value.size_ = static_cast<std::uint32_t>(length);
    value.text_ = text.data();
    push(value);
  }
  // An integer of any length, little endian, two's complement.
  void push_long(std::uint64_t length) {
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

  PickleValue pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::size_t pop_mark() {
    if (marks_.empty()) fail("no MARK to go back to");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  // A container of the `count` topmost values.
  void push_container(Kind kind, std::size_t count) {
    if (stack_.size() - floor() < count) fail("the stack is empty");
    const std::uint64_t taken = count == 0 ? 0 : ReadBudget::allocated(count * sizeof(PickleValue));
    budget_.hold(sizeof(std::vector<PickleValue>) + taken, [this] { return here(); });
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    document_.containers_.emplace_back(first, stack_.end());
    stack_.erase(first, stack_.end());
    PickleValue value;
    value.kind_ = kind;
    value.items_ = &document_.containers_.back();
    push(value);
  }
  // Appends the `count` topmost values to the container below them.
  void extend(Kind kind, std::size_t count, const char* op) {
    if (stack_.size() - floor() < count + 1) fail("the stack is empty");
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    const PickleValue& target = *(first - 1);
    if (target.kind_ != kind) {
      fail(std::string(op) + " to a " + target.kind_name());
    }
    if (kind == Kind::dict && count % 2 != 0) fail("a dict key without a value");
    make_room(*target.items_, count);
    target.items_->insert(target.items_->end(), first, stack_.end());
    stack_.erase(first, stack_.end());
  }

  void put(std::uint64_t index) {
    // Pickles number what they memoize; a number beyond the opcodes so far is an attack on memory.
    if (index > opcodes_) fail("memo number " + std::to_string(index) + " out of range");
    if (stack_.size() <= floor()) fail("the stack is empty");
    if (index >= memo_.size()) {
      make_room(memo_, index + 1 - memo_.size());
      memo_.resize(index + 1);
      known_.resize(index + 1, false);
    }
    memo_[index] = stack_.back();
    known_[index] = true;
  }
  void get(std::uint64_t index) {
    if (index >= memo_.size() || !known_[index]) {
      fail("memo number " + std::to_string(index) + " was never set");
    }
    push(memo_[index]);
  }

  // Obeys one opcode; true at the end.
  bool step(unsigned char op) {
    switch (op) {
      case kProto: {
        const std::uint64_t version = number(1);
        if (version < 2 || version > 5) {
          fail("pickle protocol " + std::to_string(version) + "; 2 to 5 are read");
        }
        return false;
      }
      case kFrame:
        if (const std::uint64_t length = number(8); length > bytes_.size() - at_) {
          fail("the file is cut off: a frame of " + std::to_string(length) + " bytes, " +
               std::to_string(bytes_.size() - at_) + " left");
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
          pop();
        }
        return false;
      case kPopMark:
        stack_.resize(pop_mark());
        return false;
      case kDup:
        if (stack_.size() <= floor()) fail("the stack is empty");
        push(stack_.back());
        return false;
      case kNone:
        push({});
        return false;
      case kNewTrue:
        push_boolean(true);
        return false;
      case kNewFalse:
        push_boolean(false);
        return false;
      case kBinInt:
        push_integer(static_cast<std::int32_t>(number(4)));
        return false;
      case kBinInt1:
        push_integer(static_cast<std::int64_t>(number(1)));
        return false;
      case kBinInt2:
        push_integer(static_cast<std::int64_t>(number(2)));
        return false;
      case kLong1:
        push_long(number(1));
        return false;
      case kLong4:
        push_long(number(4));
        return false;
      case kBinFloat: {
        const std::string_view raw = take(8);
        std::uint64_t bits = 0;
        for (const char c : raw) bits = bits << 8 | static_cast<unsigned char>(c);
        PickleValue value;
        value.kind_ = Kind::real;
        value.real_ = std::bit_cast<double>(bits);
        push(value);
        return false;
      }
      case kShortBinUnicode:
        push_text(Kind::text, number(1));
        return false;
      case kBinUnicode:
        push_text(Kind::text, number(4));
        return false;
      case kBinUnicode8:
        push_text(Kind::text, number(8));
        return false;
      case kShortBinBytes:
        push_text(Kind::bytes, number(1));
        return false;
      case kBinBytes:
        push_text(Kind::bytes, number(4));
        return false;
      case kBinBytes8:
      case kByteArray8:
        push_text(Kind::bytes, number(8));
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
        put(number(1));
        return false;
      case kLongBinPut:
        put(number(4));
        return false;
      case kMemoize:
        put(memo_.size());
        return false;
      case kBinGet:
        get(number(1));
        return false;
      case kLongBinGet:
        get(number(4));
        return false;
      default:
        break;
    }
    if (const char* name = refused(op); name != nullptr) {
      fail(std::string("the pickle wants to run code (opcode ") + name +
           "); a memory snapshot holds plain data only");
    }
    static constexpr char kHex[] = "0123456789abcdef";
    fail(std::string("unknown opcode 0x") + kHex[op >> 4] + kHex[op & 15] +
         "; this is no pickle of plain data");
  }

  PickleDocument& document_;
  ReadBudget& budget_;
  const std::string& bytes_;
  std::uint64_t opcodes_ = 0;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::vector<PickleValue> memo_;
  std::vector<bool> known_;
};

PickleDocument::PickleDocument(std::string bytes, std::string name)
    : budget_(std::move(name), bytes.size()), bytes_(std::move(bytes)) {
  PickleMachine(*this).run();
}

bool looks_like_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && static_cast<unsigned char>(bytes[0]) == kProto && bytes[1] >= 2 &&
         bytes[1] <= 5;
}

}  // namespace gapless
