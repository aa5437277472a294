// Recordings through every writer: a page, and each format that gapless convert has. A writer
// answers within a budget of memory, and what it wrote can be read:
//
//   recording --> page                    its tables are whole
//             --> gtrace                  read back as it was
//             --> pickle                  read back, where devices can be told apart
//             --> perfetto, speedscope    JSON
//             --> minimalloc              as many buffers as there are blocks
#pragma once

#include <cstddef>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless::testing {

/// `size`: of the file they were read from. Aborts where one does not hold.
void write_everything(const std::vector<Trace>& traces, std::size_t size);

}  // namespace gapless::testing
