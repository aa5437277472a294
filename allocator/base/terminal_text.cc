#include "allocator/base/terminal_text.h"

#include <cstdint>

namespace gapless {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text does not begin with a character of UTF-8
};

// The first character of a text that is not empty. Overlong forms, surrogates and what lies beyond
// Unicode are none.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || surrogate || code > 0x10ffff) return {};
  return {code, bytes};
}

bool is_obeyed(std::uint32_t code) {
  const auto within = [code](std::uint32_t first, std::uint32_t last) {
    return code >= first && code <= last;
  };
  return code < 0x20 || within(0x7f, 0x9f) || code == 0x61c ||  // controls; Arabic letter mark
         within(0x200e, 0x200f) || within(0x2028, 0x202e) ||    // direction, lines, overrides
         within(0x2066, 0x2069) || code == 0xfeff ||            // isolates; byte order mark
         within(0xe0000, 0xe007f);                              // tags, which are not seen
}

std::string hex(std::uint32_t value, int digits) {
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    text += "0123456789abcdef"[value >> shift & 15];
  }
  return text;
}

std::string escape_of(std::uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (code < 0x80) return "\\x" + hex(code, 2);
  return code > 0xffff ? "\\U" + hex(code, 8) : "\\u" + hex(code, 4);
}

}  // namespace

std::string terminal_text(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_of(text);
    if (character.bytes == 0) {
      shown += "\\x" + hex(static_cast<unsigned char>(text[0]), 2);
      text.remove_prefix(1);
      continue;
    }
    if (is_obeyed(character.code)) {
      shown += escape_of(character.code);
    } else {
      shown += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return shown;
}

}  // namespace gapless
