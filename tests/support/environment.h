// Numbers from the environment, by which long tests are made longer or shorter.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace gapless::testing {

inline std::uint64_t environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoull(text);
}

/// Of the calls that a sweep fails one after the other, every so many-th; 1 where nothing is said.
inline std::uint64_t sweep_stride() { return environment("GAPLESS_SWEEP_STRIDE", 1); }

}  // namespace gapless::testing
