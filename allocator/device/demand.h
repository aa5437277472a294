// Demand: what the program asked for so far, by which the heap decides how far to go.
#pragma once

#include <cstdint>

namespace gapless {

struct Demand {
  std::uint64_t peak_bytes = 0;    // peak allocated, with the present request in it
  std::uint64_t volume_bytes = 0;  // all that was ever allocated
};

}  // namespace gapless
