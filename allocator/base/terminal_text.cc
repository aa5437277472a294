#include "allocator/base/terminal_text.h"

#include <cstdint>

#include "allocator/base/utf8.h"

namespace gapless {
namespace {

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
    const Utf8Character character = first_character(text);
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
