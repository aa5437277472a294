// What a search found, as JSON has it and as people read it.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "tools/search/search.h"

namespace gapless::tools {

/// {"allocators": {"gapless": {"batch-size": 48, "fails_at": 49, ...}, ...}, ...}; with several
/// combinations {"gapless": {"frontier": [{"precision": "fp32", "batch-size": 24, ...}, ...]}}.
nlohmann::ordered_json json_of(const Search& search);

/// The table, and under it why the next setting does not fit, and what to be wary of.
std::string text_of(const Search& search, bool colour, std::size_t columns);

/// "gapless, batch-size 48: yes (14.20 GiB allocated, 14.38 GiB reserved, 6 s)"
std::string line_of(const Search& search, const SearchCell& cell, std::size_t index);

/// Whether every allocator has a setting that fits, with every combination, and it is proven.
bool all_found(const Search& search);

}  // namespace gapless::tools
