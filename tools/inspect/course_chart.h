// A picture of memory over time for the terminal: what was allocated, and above it what was
// reserved beside.
//
//   27.3 GiB |            ..................
//            |      ....................####
//            |  ....##..###.####.#####.#####
//    0       |##############################
//             event 0                 205,000
#pragma once

#include <string>
#include <vector>

#include "allocator/report/moment.h"

namespace gapless::tools {

/// `columns`: of the terminal; 0: 100. `marked`: the event that is pointed at, of so many.
std::string course_chart(const std::vector<MemorySums>& course, std::size_t columns, bool colour,
                         std::size_t marked, std::size_t events);

}  // namespace gapless::tools
