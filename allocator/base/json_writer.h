// JsonWriter: JSON of any length, handed on piece by piece.
//
//   begin('{'), key("a"), value(1), end('}')   ->   {"a":1}
//
// Texts are ASCII as json_text() makes them: what is not UTF-8 becomes U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/base/files.h"

namespace gapless {

class JsonWriter {
 public:
  explicit JsonWriter(const WriteBytes& write) : write_(write) {}
  ~JsonWriter() { write_(out_); }
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  JsonWriter& begin(char bracket) {
    separate();
    out_ += bracket;
    first_ = true;
    return *this;
  }
  JsonWriter& end(char bracket) {
    out_ += bracket;
    first_ = false;
    if (out_.size() >= kPiece) {
      write_(out_);
      out_.clear();
    }
    return *this;
  }
  /// A name that needs no escapes.
  JsonWriter& key(std::string_view name) {
    separate();
    out_.append("\"").append(name).append("\":");
    first_ = true;
    return *this;
  }
  JsonWriter& value(std::uint64_t number) {
    separate();
    out_ += std::to_string(number);
    return *this;
  }
  JsonWriter& flag(bool yes) {
    separate();
    out_ += yes ? "true" : "false";
    return *this;
  }
  /// A text that needs no escapes.
  JsonWriter& word(std::string_view text) {
    separate();
    out_.append("\"").append(text).append("\"");
    return *this;
  }
  JsonWriter& text(std::string_view text) { return encoded(json_string(text)); }
  /// What json_string() made of a text that comes again.
  JsonWriter& encoded(std::string_view value) {
    separate();
    out_ += value;
    return *this;
  }
  /// On a line of its own what follows.
  JsonWriter& line() {
    if (!first_) out_ += ',';
    out_ += '\n';
    first_ = true;
    return *this;
  }

  /// A text as JSON, with its quotation marks.
  static std::string json_string(std::string_view text);

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;

  void separate() {
    if (!first_) out_ += ',';
    first_ = false;
  }

  const WriteBytes& write_;
  std::string out_;
  bool first_ = true;
};

}  // namespace gapless
