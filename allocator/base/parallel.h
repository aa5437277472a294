// Work in pieces that do not depend on each other, by several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace gapless {

/// Does work(0) to work(pieces - 1), by at most so many threads. What the first one throws is
/// thrown when all have stopped; the pieces that nobody began then are left out.
void in_parallel(std::size_t pieces, std::size_t threads,
                 const std::function<void(std::size_t)>& work);

}  // namespace gapless
