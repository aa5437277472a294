#include "simgpu/ptx/lexer.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "simgpu/ptx/error.h"

namespace gapless::simgpu::ptx {
namespace {

bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%';
}
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    bool begins_line = true;
    while (true) {
      const unsigned before = line_;
      skip();
      begins_line = begins_line || line_ != before;
      Token token;
      token.line = line_;
      token.begins_line = begins_line;
      begins_line = false;
      const std::size_t start = at_;
      if (at_ == text_.size()) {
        tokens.push_back(token);
        return tokens;
      }
      if (is_digit(text_[at_])) {
        token.kind = Token::Kind::number;
        number();
      } else if (is_word_char(text_[at_])) {
        token.kind = Token::Kind::word;
        while (at_ < text_.size() && is_word_char(text_[at_])) ++at_;
      } else if (text_[at_] == '"') {
        token.kind = Token::Kind::text;
        at_ = text_.find('"', at_ + 1);
        if (at_ == std::string_view::npos) throw PtxError(line_, "a text without an end");
        ++at_;
      } else if (std::string_view("@!.,;:[]{}()<>+-|=~*&").find(text_[at_]) !=
                 std::string_view::npos) {
        token.kind = Token::Kind::sign;
        ++at_;
      } else {
        throw PtxError(line_, "a character that PTX has not: " + std::string(1, text_[at_]));
      }
      token.text = text_.substr(start, at_ - start);
      tokens.push_back(token);
    }
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') {
        ++line_;
        ++at_;
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '\0') {
        ++at_;
      } else if (text_.compare(at_, 2, "//") == 0) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.compare(at_, 2, "/*") == 0) {
        const std::size_t end = text_.find("*/", at_);
        if (end == std::string_view::npos) throw PtxError(line_, "a comment without an end");
        for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
      } else {
        return;
      }
    }
  }

  // 12, 0x1F, 7U, 1.5, 2.0e-3, and 0f or 0d with the bits of a float.
  void number() {
    const bool has_prefix =
        text_[at_] == '0' && at_ + 1 < text_.size() &&
        std::string_view("xXfFdDbB").find(text_[at_ + 1]) != std::string_view::npos;
    digits();
    if (has_prefix || !is_at('.') || at_ + 1 == text_.size() || !is_digit(text_[at_ + 1])) return;
    ++at_;
    digits();
    if (text_[at_ - 1] != 'e' && text_[at_ - 1] != 'E') return;
    if (is_at('-') || is_at('+')) ++at_;
    digits();
  }
  void digits() {
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  [[nodiscard]] bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }

  std::string_view text_;
  std::size_t at_ = 0;
  unsigned line_ = 1;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view ptx) { return Lexer(ptx).run(); }

}  // namespace gapless::simgpu::ptx
