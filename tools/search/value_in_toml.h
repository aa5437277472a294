// One value of a TOML file, replaced; everything else stays as it is written.
//
//   [training]                 training.local_batch_size, "16"
//   local_batch_size = 8   # per GPU   ->   local_batch_size = 16   # per GPU
#pragma once

#include <string>

namespace gapless::tools {

/// The text with another value at `key`: names and positions in arrays, with dots between them. A
/// text stays a text; a number or a constant becomes what the value reads like.
/// Throws InputError that names file and key, where there is no such key or it has no plain value.
std::string with_toml_value(const std::string& file, const std::string& text,
                            const std::string& key, const std::string& value);

}  // namespace gapless::tools
