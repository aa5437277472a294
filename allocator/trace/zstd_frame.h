// One zstd frame with a checksum, that says how long its contents are: what trace files consist of.
#pragma once

#include <string>
#include <string_view>

#include "allocator/base/read_budget.h"

namespace gapless {

std::string zstd_frame(std::string_view bytes, int level);

/// The contents, which are held on the budget until they are given back. Throws InputError at
/// `place` where that is no such frame or its checksum is wrong.
std::string unpack_zstd_frame(std::string_view packed, ReadBudget& budget,
                              const std::string& place);

}  // namespace gapless
