// The word somebody may have meant: "slak" is nearest to "slack", "replya" to "replay".
#pragma once

#include <span>
#include <string_view>

namespace gapless {

/// The known word that takes the fewest edits (letters put in, left out, exchanged or swapped with
/// the next), without regard to case; the first of several, empty where none is known.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace gapless
