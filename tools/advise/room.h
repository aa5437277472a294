// GPUs with room for everything: what a program needs in all is seen there.
//
//   "A100,2x16GiB" -> "A100:1024GiB,2x1024GiB"
#pragma once

#include <string>

namespace gapless::tools {

/// The same GPUs (docs/simulated-gpu.md has how they are named) with 1 TiB each.
std::string with_room(const std::string& gpus);

}  // namespace gapless::tools
