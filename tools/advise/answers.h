// What follows from the runs, in sentences with their numbers.
//
//   "changing the allocator does not help: it dies with native, gapless, expandable; ..."
//   "no ZeRO stage helps: ..."
#pragma once

#include <string>
#include <vector>

#include "tools/advise/advise.h"

namespace gapless::tools {

std::vector<std::string> answers_of(const Advice& advice);

/// What no sharding and no offload of parameters, gradients and states takes away: the most of
/// logits, activations and inputs that is live at once. In bytes.
std::uint64_t least_with_zero(const Subject& needed);

}  // namespace gapless::tools
