// What PickleMachine does for the elements that are left out, and for the lists in them: it knows
// where on the stack the way to them leads, and fills lists whose opcodes it has seen before.
#include <cstring>
#include <utility>

#include "allocator/trace/pickle_machine.h"
#include "allocator/trace/pickle_opcodes.h"

namespace gapless {

// --- the way to the elements -------------------------------------------------------------------

// An empty list is about to be pushed: the list of lists, or one of them?
void PickleMachine::begin_way() {
  const std::size_t at = stack_.size();
  if (way_.list_at != kNowhere) {
    // Right above the list that was filled, where no element can stand: the one beside it.
    if (at != way_.list_at + 1 || marks_.size() != way_.list_marks) return;
    way_.list_at = at;
    return;
  }
  if (way_.lists_at != kNowhere) {
    const bool one = marks_.size() == way_.lists_marks && at == way_.lists_at + 1;
    const bool many = marks_.size() == way_.lists_marks + 1 && marks_.back() == way_.lists_at + 1;
    if (!one && (!many || at != way_.lists_at + 1)) return;
    way_.list_at = at;
    way_.list_marks = marks_.size();
    return;
  }
  if (way_.begun || at < 2) return;
  const PickleValue& key = stack_[at - 1];
  const PickleValue& root = stack_[0];
  if (!key.is_text() || key.text() != key_of_lists_) return;
  if (!root.is_dict() || (root.flags_ & PickleValue::kFetched) != 0) return;
  const bool one = marks_.empty() && at == 2;
  const bool many = marks_.size() == 1 && marks_[0] == 1 && at % 2 == 0 && at > 1;
  if (!one && !many) return;
  way_.begun = true;
  way_.lists_at = at;
  way_.lists_marks = marks_.size();
  way_.root = root.items_;
}

// The stack is about to end at `first`, and what was above goes into the value at `target`.
void PickleMachine::leave_way(std::size_t target, std::size_t first) {
  if (!way_.begun || way_.done) return;
  if (way_.list_at != kNowhere && first <= way_.list_at) {
    if (target != way_.lists_at || stack_.size() != way_.list_at + 1) tangled();
    way_.list_at = kNowhere;
    return;
  }
  if (way_.lists_at != kNowhere && first <= way_.lists_at) {
    if (target != 0) tangled();  // with keys and values beside it
    way_.lists_at = kNowhere;
    way_.done = true;
  }
}

// The topmost values are elements of the list below them.
void PickleMachine::look_at(std::size_t count) {
  const std::size_t first = stack_.size() - count;
  PickleItems& list = *stack_[way_.list_at].items_;
  if (mode_ == Mode::stream) {
    const std::size_t number = way_.lists->values.size() + (way_.list_at - way_.lists_at - 1);
    for (std::size_t i = 0; i < count; ++i) {
      (*look_)(number, list.left_out + i, stack_[first + i]);
      store_.let_go(stack_[first + i]);
    }
  }
  list.left_out += count;
  stack_.resize(first);
}

void PickleMachine::end_way(const PickleValue& root) {
  if (!way_.begun) return;
  if (!way_.done || !root.is_dict() || root.items_ != way_.root) tangled();
  const PickleValue* const lists = root.find(key_of_lists_);
  if (lists == nullptr || !lists->is_container() || lists->items_ != way_.lists) tangled();
}

// --- lists that are written out again ----------------------------------------------------------

// What stands on the stack from there on, whose references go with it.
void PickleMachine::move_into(PickleItems& items, std::size_t first) {
  store_.make_room(items, stack_.size() - first, [this] { return here(); });
  items.values.insert(items.values.end(), stack_.begin() + static_cast<std::ptrdiff_t>(first),
                      stack_.end());
}

// A list that shares its values gets more.
void PickleMachine::have_own(PickleItems& items) {
  if (items.same == nullptr) return;
  store_.make_room(items, items.same->values.size(), [this] { return here(); });
  items.values = items.same->values;
  for (const PickleValue& value : items.values) PickleStore::refer_to(value);
  store_.let_go(std::exchange(items.same, nullptr));
}

namespace {

// The end of the gets that begin there, where an opcode follows in the same piece; else nullptr.
const char* end_of_gets(const char* at, const char* end) {
  using enum pickle_opcodes::Op;
  constexpr std::ptrdiff_t kGetBytes = 2;
  constexpr std::ptrdiff_t kLongGetBytes = 5;
  while (at < end) {
    const auto op = static_cast<unsigned char>(*at);
    const std::ptrdiff_t bytes = op == kLongBinGet ? kLongGetBytes : op == kBinGet ? kGetBytes : 0;
    if (bytes == 0) return at;
    if (end - at < bytes) return nullptr;
    at += bytes;
  }
  return nullptr;
}

// Takes each get's number, and where it stands.
template <class Use>
void each_get(std::string_view opcodes, const Use& use) {
  for (const char* at = opcodes.data(); at != opcodes.data() + opcodes.size();) {
    const char* const op = at++;
    std::uint32_t number = static_cast<unsigned char>(*at);
    std::size_t bytes = 1;
    if (static_cast<unsigned char>(*op) == pickle_opcodes::kLongBinGet) {
      bytes = sizeof number;
      std::memcpy(&number, at, bytes);
    }
    at += bytes;
    use(op, number);
  }
}

}  // namespace

// At a MARK: whether only gets follow, all of which go into the list that was just begun inside an
// element; it has been filled then.
bool PickleMachine::fill_by_run() {
  const char* const gets_end = end_of_gets(at_ + 1, end_);
  if (gets_end == nullptr || static_cast<unsigned char>(*gets_end) != pickle_opcodes::kAppends) {
    return false;
  }
  const std::string_view opcodes(at_ + 1, static_cast<std::size_t>(gets_end - at_ - 1));
  if (opcodes.size() < PickleRuns::kLeastBytes || stack_.size() <= floor()) return false;
  const PickleValue list = stack_.back();
  constexpr int kOfOthers = PickleValue::kFetched | PickleValue::kOnTheWay;
  if (list.kind_ != Kind::list || (list.flags_ & kOfOthers) != 0) return false;
  if (!list.is_hollow() && (list.items_->same != nullptr || !list.items_->values.empty())) {
    return false;
  }
  PickleItems* elements = nullptr;
  if (runs_.find(opcodes, elements)) {
    op_ = gets_end;
  } else {
    const std::size_t first = stack_.size();
    each_get(opcodes, [&](const char* op, std::uint64_t index) {
      op_ = op;
      get(index);
      if (mode_ == Mode::survey) uses_[index] = kManyUses;
    });
    op_ = gets_end;
    if (!list.is_hollow()) {
      elements = store_.items([this] { return here(); });
      move_into(*elements, first);
    }
    runs_.keep(opcodes, elements, [this] { return here(); });
    if (elements != nullptr) store_.let_go(elements);
    stack_.resize(first);
  }
  if (elements != nullptr) {
    list.items_->same = elements;
    ++elements->references;
  }
  at_ = gets_end + 1;
  return true;
}

}  // namespace gapless
