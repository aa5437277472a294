// What cards sold with so many GB have of them, where an answer was asked for a size alone:
//
//   gapless fits --gpu 16GiB     15.09 GiB in use: yes
//                                   but a T4, which is sold with 16 GB, has 14.74 GiB
//   gapless fits --gpu 24GiB     a kernel with 128 KiB of shared memory: yes
//                                   but a block of an RTX 3090 has 99 KiB
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gapless::tools {

/// Which of the cards sold with the size that the row's GPU was given have less of it than was in
/// use there; empty where none has, where it does not fit anyway, and where the card was named.
std::string smaller_cards_note(const nlohmann::json& row);

/// Which of them have less shared memory than a kernel was launched with; empty as above.
std::string shared_memory_note(const nlohmann::json& row);

}  // namespace gapless::tools
