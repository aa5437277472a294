#include "allocator/trace/pickle.h"

#include <utility>

#include "allocator/trace/pickle_machine.h"

namespace gapless {

PickleDocument::PickleDocument(std::string bytes, std::string name)
    : PickleDocument(bytes_in_memory(std::move(bytes)), std::move(name), "") {}

PickleDocument::PickleDocument(std::unique_ptr<ByteSource> source, std::string name,
                               std::string key_of_lists)
    : budget_(std::move(name), source->size()),
      source_(std::move(source)),
      key_of_lists_(std::move(key_of_lists)) {
  budget_.give_back(source_->size() - source_->held_bytes());
  const auto read = [&](PickleMachine::Mode mode) {
    source_->rewind();
    store_ = std::make_unique<PickleStore>(budget_);
    PickleMachine machine(*source_, budget_, *store_, mode, key_of_lists_);
    root_ = machine.run();
    left_out_ = machine.left_out();
    if (left_out_) uses_ = machine.take_uses();
  };
  if (!key_of_lists_.empty()) {
    try {
      read(PickleMachine::Mode::survey);
      return;
    } catch (const PickleMachine::Tangled&) {
      store_.reset();
    }
  }
  read(PickleMachine::Mode::whole);
}

void PickleDocument::each_element(std::string_view key_of_lists, const LookAt& look) const {
  if (left_out_) {
    source_->rewind();
    PickleStore store(budget_);
    PickleMachine machine(*source_, budget_, store, PickleMachine::Mode::stream, key_of_lists_);
    machine.look_at_elements(look, uses_);
    source_->check_unchanged();
    return;
  }
  const PickleValue* const lists = root_.find(key_of_lists);
  if (lists == nullptr || !lists->is_list()) return;
  for (std::size_t i = 0; i < lists->items().size(); ++i) {
    const PickleValue& list = lists->items()[i];
    if (!list.is_list()) continue;
    for (std::size_t j = 0; j < list.items().size(); ++j) look(i, j, list.items()[j]);
  }
}

bool looks_like_pickle(std::string_view bytes) {
  constexpr unsigned char kProtocol = 0x80;
  return bytes.size() >= 2 && static_cast<unsigned char>(bytes[0]) == kProtocol && bytes[1] >= 2 &&
         bytes[1] <= 5;
}

}  // namespace gapless
