// Advice, for people and as JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "tools/advise/advise.h"

namespace gapless::tools {

/// In so many columns.
std::string text_of_advice(const Advice& advice, bool colour, std::size_t columns);

/// docs/advise.md has its form.
nlohmann::json json_of_advice(const Advice& advice);

}  // namespace gapless::tools
