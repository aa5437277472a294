#include "simgpu/ptx/tokens.h"

#include <algorithm>

#include "simgpu/ptx/error.h"
#include "simgpu/ptx/number.h"

namespace gapless::simgpu::ptx {

const Token& Tokens::peek(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const Token& Tokens::next() {
  const Token& token = peek();
  if (token.kind != Token::Kind::end) ++at_;
  return token;
}

bool Tokens::accept(std::string_view text) {
  if (!is(text)) return false;
  next();
  return true;
}

void Tokens::expect(std::string_view text) {
  if (!accept(text)) wrong("'" + std::string(text) + "' was expected");
}

std::string_view Tokens::word() {
  if (peek().kind != Token::Kind::word) wrong("a name was expected");
  return next().text;
}

std::uint64_t Tokens::whole_number() {
  const bool negative = accept("-");
  if (peek().kind != Token::Kind::number) wrong("a number was expected");
  const auto value = integer_of(peek().text);
  if (!value) wrong("a whole number was expected");
  next();
  return negative ? ~*value + 1 : *value;
}

void Tokens::wrong(const std::string& what) const {
  throw PtxError(line(), what + (at_end() ? ", not the end of the file"
                                          : ", not '" + std::string(peek().text) + "'"));
}

void Tokens::skip_statement() {
  int depth = 0;
  while (!at_end()) {
    const std::string_view text = next().text;
    if (text == "{") ++depth;
    if (text == "}" && --depth == 0) return;
    if (text == ";" && depth == 0) return;
  }
}

void Tokens::skip_line() {
  do next();
  while (!at_end() && !peek().begins_line);
}

}  // namespace gapless::simgpu::ptx
