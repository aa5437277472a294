// Pools that are no one's: free memory that no search finds unless it is meant to.
#pragma once

#include "allocator/stream/stream_sets.h"

namespace gapless {

/// What is free in host memory: nobody's, before the last resort (spill.cc).
inline constexpr PoolIndex kSpillPool = UINT16_MAX;
/// What is set aside (refused_memory.h): of the memory for everyone, of the host's, of a private
/// pool's.
inline constexpr PoolIndex kAsidePools = UINT16_MAX - 3;

}  // namespace gapless
