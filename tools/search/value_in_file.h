// One value of a configuration file, replaced.
//
//   train.yaml   trainer:                         trainer.batch_size, "16"
//                  batch_size: 8   # per GPU  ->  batch_size: 16   # per GPU
//
// Of YAML and TOML only that value's text changes: comments, quotes and order stay. JSON is written
// anew, in its order.
#pragma once

#include <string>

namespace gapless::tools {

/// The text of a file (.json, .toml, .yaml, .yml) with another value at `key`: names and positions
/// in lists, with dots between them. The value becomes a number or a constant where it reads like
/// one. Throws InputError that names file and key, where there is no such key or it has no plain
/// value.
std::string with_value(const std::string& file, const std::string& text, const std::string& key,
                       const std::string& value);

}  // namespace gapless::tools
