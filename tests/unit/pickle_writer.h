// Writes pickles opcode by opcode, good and bad, for the tests of the reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gapless::testing {

class PickleWriter {
 public:
  explicit PickleWriter(int protocol = 4) {
    bytes_ += '\x80';
    bytes_ += static_cast<char>(protocol);
  }
  PickleWriter& op(int byte) {
    bytes_ += static_cast<char>(byte);
    return *this;
  }
  PickleWriter& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  PickleWriter& number(std::uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  PickleWriter& text(std::string_view value) { return op(0x8c).number(value.size(), 1).raw(value); }
  PickleWriter& integer(std::int64_t value) {
    return op(0x8a).number(8, 1).number(static_cast<std::uint64_t>(value), 8);
  }
  PickleWriter& list() { return op(']'); }
  PickleWriter& dict() { return op('}'); }
  PickleWriter& mark() { return op('('); }
  PickleWriter& append() { return op('a'); }
  PickleWriter& appends() { return op('e'); }
  PickleWriter& set_items() { return op('u'); }
  PickleWriter& none() { return op('N'); }
  std::string stop() { return bytes_ + "."; }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

  /// An event of device_traces, as the items of a dict.
  PickleWriter& event(std::string_view action, std::uint64_t address, std::uint64_t size,
                      std::uint64_t stream = 0) {
    dict().mark();
    text("action").text(action);
    text("addr").integer(static_cast<std::int64_t>(address));
    text("size").integer(static_cast<std::int64_t>(size));
    text("stream").integer(static_cast<std::int64_t>(stream));
    return set_items();
  }
  PickleWriter& block(std::uint64_t size, std::string_view state) {
    dict().mark();
    text("size").integer(static_cast<std::int64_t>(size));
    text("requested_size").integer(static_cast<std::int64_t>(size));
    text("state").text(state);
    return set_items();
  }

 private:
  std::string bytes_;
};

}  // namespace gapless::testing
