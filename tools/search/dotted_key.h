// A place in a configuration file, by names and positions with dots between them.
//
//   layers.1.width    "layers", position 1, "width"; or "layers.1", "width", where there is such a
//   name
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gapless::tools {

/// A key may have dots in its own name, so the longest name that is there goes first: calls `found`
/// with each name that begins `key`, and what is left of it behind the dot, until it says true.
template <class Try>
bool any_split(const std::string& key, const Try& found) {
  for (std::size_t end = key.size(); end != std::string::npos && end != 0;
       end = key.rfind('.', end - 1)) {
    if (found(key.substr(0, end), end == key.size() ? "" : key.substr(end + 1))) return true;
  }
  return false;
}

/// Of a name that is a position in a list; SIZE_MAX where it is none.
inline std::size_t position_of(const std::string& name) {
  std::size_t position = 0;
  if (name.empty() || name.size() > 9) return SIZE_MAX;
  for (const char c : name) {
    if (c < '0' || c > '9') return SIZE_MAX;
    position = 10 * position + static_cast<std::size_t>(c - '0');
  }
  return position;
}

}  // namespace gapless::tools
