// PTX's text in tokens:
//
//   @%p1 add.s64 %rd9, %rd8, -4;      @  %p1  add  .  s64  %rd9  ,  %rd8  ,  -  4  ;
//
// Comments are gone; a number keeps its spelling (0f3F800000 is a float by its bits).
#pragma once

#include <string_view>
#include <vector>

namespace gapless::simgpu::ptx {

struct Token {
  enum class Kind { word, number, text, sign, end };
  Kind kind = Kind::end;
  std::string_view text;  // of the PTX, which has to outlive it; of a sign its character
  unsigned line = 0;
  bool begins_line = false;
};

/// Ends with a token of kind `end`. Throws PtxError of a character that is in no token.
std::vector<Token> tokens_of(std::string_view ptx);

}  // namespace gapless::simgpu::ptx
