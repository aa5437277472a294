// A picture of replays: what each allocator reserved over the operations of a recorded run, above
// what was allocated, which is the same for all.
//
//   GiB |------------------------------ capacity
//       |      .- - - - - - x                       native: does not fit
//       |    _/   _______________________________   gapless: 13.70 GiB reserved
//       |___/____/#####\___/####\___/#####\_____|   allocated: 13.61 GiB at most
//       +---------------------------------------+   allocations and frees, in order
//
// Drawn are as few passes as tell it: the first, and more where an allocator failed in a later one
// or reserved clearly more. One file that needs no other; colours follow the reader's preference
// for light or dark, and lines differ in more than colour. Texts in it may come from anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/replay/replay.h"

namespace gapless::tools {

/// One recorded run, through each allocator.
struct ReplayPanel {
  std::string title;
  std::vector<bench::ReplayResult> results;
  std::uint64_t capacity_bytes = 0;  // 0: none was given
  int passes = 1;
};

/// One below the other.
std::string svg_of_replays(const std::vector<ReplayPanel>& panels);

}  // namespace gapless::tools
