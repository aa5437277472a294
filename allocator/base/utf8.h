// UTF-8, character by character, of text that may be any bytes.
//
//   "a\xc3\xa9\xff"   ->   'a' 1 byte, U+00E9 2 bytes, no character
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gapless {

struct Utf8Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text does not begin with a character of UTF-8
};

/// The first character of a text that is not empty. Overlong forms, surrogates and what lies beyond
/// Unicode are none.
Utf8Character first_character(std::string_view text);

/// The text with U+FFFD in place of each byte that belongs to no character.
std::string valid_utf8(std::string_view text);

}  // namespace gapless
