#include "allocator/trace/pickle_writer.h"

#include <utility>

#include "allocator/base/utf8.h"

namespace gapless {
namespace {

constexpr std::uint32_t kBatch = 2000;  // of a list: elements; of a dict: keys and values

}  // namespace

PickleWriter::PickleWriter() : out_("\x80\x04", 2) {}

void PickleWriter::begin(std::string_view opcodes) {
  before_value();
  out_ += opcodes;
  open_.push_back({opcodes[0] == '}', 0});
}

void PickleWriter::end() {
  out_ += open_.back().is_dict ? 'u' : 'e';
  open_.pop_back();
}

void PickleWriter::before_value() {
  if (open_.empty()) return;
  Open& open = open_.back();
  if (open.values == kBatch) {
    out_ += open.is_dict ? "u(" : "e(";
    open.values = 0;
  }
  open.values += open.is_dict ? 1 : 2;
}

void PickleWriter::number(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xff);
}

void PickleWriter::text(std::string_view value) {
  before_value();
  const std::string good = valid_utf8(value);
  if (good.size() <= 0xff) {
    out_ += '\x8c';
    number(good.size(), 1);
  } else {
    out_ += 'X';
    number(good.size(), 4);
  }
  out_ += good;
}

void PickleWriter::shared_text(std::string_view value) {
  if (const auto found = shared_.find(std::string(value)); found != shared_.end()) {
    kept(found->second);
    return;
  }
  text(value);
  shared_.emplace(value, keep());
}

void PickleWriter::integer(std::uint64_t value) {
  before_value();
  if (value <= INT64_MAX) {
    signed_integer(static_cast<std::int64_t>(value));
    return;
  }
  out_ += '\x8a';
  number(9, 1);
  number(value, 8);
  out_ += '\0';
}

void PickleWriter::signed_integer(std::int64_t value) {
  if (value >= 0 && value <= 0xff) {
    out_ += 'K';
    number(static_cast<std::uint64_t>(value), 1);
  } else if (value >= 0 && value <= 0xffff) {
    out_ += 'M';
    number(static_cast<std::uint64_t>(value), 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    out_ += 'J';
    number(static_cast<std::uint64_t>(value), 4);
  } else {
    out_ += '\x8a';
    number(8, 1);
    number(static_cast<std::uint64_t>(value), 8);
  }
}

void PickleWriter::flag(bool value) {
  before_value();
  out_ += value ? '\x88' : '\x89';
}

void PickleWriter::pair(std::int64_t first, std::int64_t second) {
  before_value();
  signed_integer(first);
  signed_integer(second);
  out_ += '\x86';
}

std::uint32_t PickleWriter::keep() {
  out_ += '\x94';
  return kept_++;
}

void PickleWriter::kept(std::uint32_t which) {
  before_value();
  if (which <= 0xff) {
    out_ += 'h';
    number(which, 1);
  } else {
    out_ += 'j';
    number(which, 4);
  }
}

std::string PickleWriter::take() {
  out_ += '.';
  return std::move(out_);
}

}  // namespace gapless
