// Report: the tables of a corpus as text.
//
//   unseen, above 1 GB: 41 programs
//     reserved over allocated, %        gapless       0.61 (-0.04)     0.90       1.42       1.80
//                                       native       14.20            31.00      52.10      60.00
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/corpus/summary.h"

namespace gapless::bench {

/// With differences to a kept run, where it is not null.
std::string text_of(const std::vector<Table>& tables, const std::vector<std::string>& allocators,
                    const nlohmann::json& kept);

/// One line for each program that may be shown and each allocator.
std::string rows_text(const std::vector<ProgramFigures>& programs,
                      const std::vector<std::string>& allocators);

}  // namespace gapless::bench
