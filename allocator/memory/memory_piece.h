// MemoryPiece: physical memory under one handle of the driver, and how much of it there is.
#pragma once

#include <cstdint>
#include <span>

#include "allocator/driver/driver.h"

namespace gapless {

struct MemoryPiece {
  std::uint64_t bytes = 0;
  MemHandle handle = 0;
};

/// All pieces together.
inline std::uint64_t bytes_of(std::span<const MemoryPiece> pieces) {
  std::uint64_t bytes = 0;
  for (const MemoryPiece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

}  // namespace gapless
