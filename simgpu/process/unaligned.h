// A value of some type at any offset of a file in memory, where it may lie unaligned.
#pragma once

#include <cstddef>
#include <cstring>

namespace gapless::simgpu {

template <class T>
T at(const char* base, std::size_t offset) {
  T value;
  std::memcpy(&value, base + offset, sizeof value);
  return value;
}

}  // namespace gapless::simgpu
