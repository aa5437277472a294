// What every page is made of, as it lies in tools/view/page/ and in d3: in the command itself, so
// that it needs no file beside it.
#pragma once

#include <string_view>
#include <vector>

namespace gapless::tools {

/// The page's skeleton, with {{TITLE}}, {{NONCE}}, {{STYLE}}, {{DATA}} and {{SCRIPT}} in it.
std::string_view page_skeleton();
std::string_view page_style();
/// The scripts in the order they need each other; d3 is the first.
std::vector<std::string_view> page_scripts();

}  // namespace gapless::tools
