// Lifetimes: how long the blocks of a recording lived, in its own steps.
//
//   step      |   first   |    2    |    3    |    4    |   last, not over
//             [===============================================   from the first step on
//                         [=======================            several steps
//                               [========]                    into the next step
//                           [==]                              within one step
//                                   [=========================   from a later step on
//                                                       [=====   made in the last step
//
// Weights and optimizer states are of the first kind, whether they are given up at the end of the
// program or not; activations live within one step; what lives from a later step on is what a leak
// looks like. A block has lived when it was given up, not when the streams that used it were done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

struct Lifetimes {
  /// "within one step", "into the next step", "several steps", "from the first step to the last",
  /// "from a later step to the end", "from the last step, not freed"; where no steps can be told
  /// apart "freed before the end", "to the end". And always "there before, to the end", "there
  /// before, freed later" of what was live when the recording began.
  std::vector<std::string> names;
  std::vector<std::uint8_t> of_block;  // index into `names`, by number of the block
  /// The events that steps end at (steps.h); empty where none can be told apart.
  std::vector<std::size_t> step_ends;
};

Lifetimes lifetimes_of(const Trace& trace);

}  // namespace gapless
