// What `gapless inspect --json` says of one moment, or one address.
#pragma once

#include <nlohmann/json.hpp>

#include "allocator/report/address.h"
#include "tools/inspect/moment_report.h"

namespace gapless::tools {

nlohmann::json inspect_json(const MomentReport& report);
nlohmann::json inspect_json(const MemoryState& state, const AddressReport& report);

}  // namespace gapless::tools
