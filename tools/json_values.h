// Values of JSON objects that need not be there: what a report has not, a table shows as "-".
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace gapless::tools {

/// The object's member; null where it has none or is no object.
nlohmann::json member(const nlohmann::json& object, const char* name);
/// 0 for what is no number.
std::uint64_t number(const nlohmann::json& value);
/// "1.50 GiB"; "-" for what is no number.
std::string size_text(const nlohmann::json& bytes);

}  // namespace gapless::tools
