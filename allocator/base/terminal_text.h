// Text from outside (names in files, call sites, options, file names) made safe to print: a
// terminal obeys what it is sent, so whoever names a file could move the cursor, set the title or
// hide a line.
//
//   "\x1b[2Jevil\n"  ->  "\\x1b[2Jevil\\n"        shown, not obeyed
#pragma once

#include <string>
#include <string_view>

namespace gapless {

/// The text in one line of what a terminal only shows. Control characters (also DEL and those from
/// U+0080 to U+009F), marks that change the direction of text or break lines, and bytes that are
/// not UTF-8 become escapes: \n, \t, \x1b, \u202e. All else stays as it is, backslashes too.
std::string terminal_text(std::string_view text);

}  // namespace gapless
