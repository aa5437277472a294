#include "allocator/trace/pickle_values.h"

#include <cstring>
#include <utility>

namespace gapless {

const PickleValue* PickleValue::find(std::string_view key) const {
  if (kind_ != Kind::dict) return nullptr;
  const std::vector<PickleValue>& all = items_->values;
  for (std::size_t i = all.size(); i >= 2; i -= 2) {  // a later key replaces an earlier one
    const PickleValue& name = all[i - 2];
    if (name.kind_ != Kind::text || name.size_ != key.size()) continue;
    const char* const text = name.text_->bytes.data();
    // Keys of one length mostly differ in their first letter.
    if (!key.empty() && text[0] != key[0]) continue;
    if (std::memcmp(text, key.data(), key.size()) == 0) return &all[i - 1];
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

void PickleStore::drop_capacity(PickleText& text) {
  give_back(text.held_bytes);
  text.held_bytes = 0;
  std::string().swap(text.bytes);
}

void PickleStore::recycle(PickleText* text) {
  if (text->bytes.capacity() > kKeptCapacity) drop_capacity(*text);
  free_texts_.push_back(text);
}

// Nesting costs no call stack: what goes with a container waits in a list.
void PickleStore::recycle(PickleItems* items) {
  going_.push_back(items);
  while (!going_.empty()) {
    PickleItems* const one = going_.back();
    going_.pop_back();
    for (const PickleValue& value : one->values) {
      if (value.kind_ < PickleValue::Kind::text || value.is_hollow()) continue;
      if (value.is_container()) {
        if (--value.items_->references == 0) going_.push_back(value.items_);
      } else if (--value.text_->references == 0) {
        recycle(value.text_);
      }
    }
    if (PickleItems* const same = std::exchange(one->same, nullptr); same != nullptr) {
      if (--same->references == 0) going_.push_back(same);
    }
    one->values.clear();
    if (one->values.capacity() > kKeptCapacity) {
      give_back(ReadBudget::allocated(one->values.capacity() * sizeof(PickleValue)));
      std::vector<PickleValue>().swap(one->values);
    }
    one->left_out = 0;
    one->number = 0;
    free_items_.push_back(one);
  }
}

}  // namespace gapless
