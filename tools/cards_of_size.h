// What cards sold with so many GB have of them, where an answer was asked for a size alone:
//
//   gapless fits --gpu 16GiB     15.09 GiB in use: yes
//                                   but a T4, which is sold with 16 GB, has 14.74 GiB
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gapless::tools {

/// Which of the cards sold with the size that the row's GPU was given have less of it than was in
/// use there; empty where none has, where it does not fit anyway, and where the card was named.
std::string smaller_cards_note(const nlohmann::json& row);

}  // namespace gapless::tools
