// Tokens: a file's tokens, one after the other; what does not fit is told with its line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simgpu/ptx/lexer.h"

namespace gapless::simgpu::ptx {

class Tokens {
 public:
  explicit Tokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  [[nodiscard]] const Token& peek(std::size_t ahead = 0) const;
  const Token& next();
  [[nodiscard]] bool is(std::string_view text) const { return peek().text == text; }
  bool accept(std::string_view text);
  void expect(std::string_view text);
  std::string_view word();
  /// With a minus or without.
  std::uint64_t whole_number();
  /// Where it is, to come back to.
  [[nodiscard]] std::size_t position() const { return at_; }
  void go_back(std::size_t position) { at_ = position; }
  [[nodiscard]] bool at_end() const { return peek().kind == Token::Kind::end; }
  [[nodiscard]] unsigned line() const { return peek().line; }
  [[noreturn]] void wrong(const std::string& what) const;

  /// To behind the next ";" that is in no braces, or behind braces where these come first.
  void skip_statement();
  void skip_line();

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace gapless::simgpu::ptx
