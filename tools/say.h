// What the command says to people: fmt::print, with every text that it is given made safe for a
// terminal. Tables do the same with their cells; JSON is ASCII.
#pragma once

#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "allocator/base/terminal_text.h"

namespace gapless::tools {

template <class T>
decltype(auto) shown(const T& value) {
  if constexpr (std::convertible_to<const T&, std::string_view>) {
    return terminal_text(value);
  } else {
    return (value);
  }
}

template <class... Args>
void say(std::FILE* file,
         fmt::format_string<decltype(shown(std::declval<const Args&>()))...> format,
         const Args&... args) {
  const auto print = [&](const auto&... safe) {
    fmt::vprint(file, format, fmt::make_format_args(safe...));
  };
  print(shown(args)...);
}

}  // namespace gapless::tools
