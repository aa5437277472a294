// Steps of a program that repeats itself, told by its memory alone.
//
//   allocated  /\__/\___/\____/\_____
//              v   v     v     v         where it is least between two rises, a step ends
//
// A wave counts from a fifth of all that memory ever moves by; smaller ones are within steps.
#pragma once

#include <cstddef>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

/// The events at which steps end, in order; none where fewer than five are found, which may be no
/// steps. A step is what lies between two of them: what lies before the first is the first step and
/// what the program made before it, what lies behind the last may not be over.
std::vector<std::size_t> step_ends(const Trace& trace);

}  // namespace gapless
