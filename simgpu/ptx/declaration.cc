#include "simgpu/ptx/declaration.h"

#include <algorithm>
#include <string>

namespace gapless::simgpu::ptx {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;

// What a variable starts with: 7, or {1, 2, {3, 4}}.
std::vector<unsigned char> first_values(Tokens& tokens, std::uint64_t element_bytes) {
  std::vector<unsigned char> bytes;
  int depth = 0;
  do {
    if (tokens.accept("{")) {
      ++depth;
    } else if (tokens.accept("}")) {
      --depth;
    } else if (!tokens.accept(",")) {
      const std::uint64_t value = tokens.whole_number();
      for (std::uint64_t i = 0; i < element_bytes; ++i) {
        bytes.push_back(static_cast<unsigned char>(i < 8 ? value >> (8 * i) : 0));
      }
    }
  } while (depth > 0);
  return bytes;
}

}  // namespace

Declared declared(Tokens& tokens) {
  Declared made;
  Variable& variable = made.variable;
  std::uint64_t bytes = 1;
  while (tokens.accept(".")) {
    const std::string_view word = tokens.word();
    if (word == "align") {
      variable.alignment =
          static_cast<unsigned>(std::clamp<std::uint64_t>(tokens.whole_number(), 1, 4096));
    } else if (word == "v2" || word == "v4") {
      bytes *= word == "v2" ? 2 : 4;
    } else if (const auto type = type_named(word)) {
      bytes *= bytes_of(*type);
    } else if (word != "ptr" && word != "global" && word != "const" && word != "shared" &&
               word != "local") {  // these: what a pointer points to
      tokens.wrong("." + std::string(word) + " is not known here");
    }
  }
  const std::uint64_t element_bytes = bytes;
  variable.alignment = std::max(variable.alignment, static_cast<unsigned>(bytes));
  variable.name = tokens.word();
  while (tokens.accept("[")) {
    if (tokens.accept("]")) {
      made.is_unsized = true;
      continue;
    }
    const std::uint64_t count = tokens.whole_number();
    if (count != 0 && bytes > kMostBytes / count) tokens.wrong("a variable of more than 1 TiB");
    bytes *= count;
    tokens.expect("]");
  }
  if (tokens.accept("=")) {
    variable.initial = first_values(tokens, element_bytes);
    if (made.is_unsized) bytes = variable.initial.size();
    made.is_unsized = false;
  }
  variable.bytes = made.is_unsized ? 0 : bytes;
  return made;
}

}  // namespace gapless::simgpu::ptx
