// Writes what was live at the peak by call stack, for speedscope (speedscope.app).
//
//   gpu 0: live at the peak       main > train_step > forward > gelu   ##########  2.1 GiB
//                                 main > train_step > backward         ####        0.9 GiB
//   gpu 0: bytes x time           the same stacks by all that they ever allocated, each block
//                                 weighted by how long it lived
//
// The peak is the first event after which the most was allocated, each block rounded up to 512 B.
#pragma once

#include <vector>

#include "allocator/base/files.h"
#include "allocator/trace/trace.h"

namespace gapless {

/// The traces of one recording, piece by piece: two profiles of each.
void write_speedscope(const std::vector<Trace>& traces, const WriteBytes& write);

}  // namespace gapless
