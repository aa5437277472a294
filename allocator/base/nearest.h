// The word somebody may have meant: "slak" is nearest to "slack", "replya" to "replay".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace gapless {

/// The known word that takes the fewest edits (letters put in, left out, exchanged or swapped with
/// the next), without regard to case; the first of several, empty where none is known, or none
/// takes so few.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known,
                         std::size_t most_edits = SIZE_MAX);

}  // namespace gapless
