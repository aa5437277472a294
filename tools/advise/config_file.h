// A configuration file of a kind that is known, and its keys for what `advise` changes.
//
//   Trainer     train.yaml   per_device_train_batch_size: 8      (TrainingArguments, YAML or JSON)
//   accelerate  default.yaml mixed_precision: 'no'
//   DeepSpeed   ds.json      {"zero_optimization": {"stage": 2}}
//
// The kind is told by the keys that are there. Comments and order of YAML stay; what is not there
// is added.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gapless::tools {

struct ConfigFile {
  enum class Kind { trainer, accelerate, deepspeed };
  std::string path;
  std::string text;
  Kind kind = Kind::trainer;

  /// What is at that key (names with dots between); null where it is not there.
  [[nodiscard]] nlohmann::json value(const std::string& key) const;
};

/// The file, where there is one of a kind that is known. Throws InputError where it is of such a
/// name (.json, .yaml, .yml) and cannot be read.
std::optional<ConfigFile> config_file(const std::string& path);

/// "accelerate"
std::string name_of(ConfigFile::Kind kind);

/// The text with that key set: a number, a truth or a text as the value reads. Throws InputError,
/// naming file and key, where that is not possible without changing more.
std::string with_key(const std::string& path, const std::string& text, const std::string& key,
                     const std::string& value);

/// Lines that differ, as people read changes: "-stage: 2" and "+stage: 3".
std::string changed_lines(const std::string& before, const std::string& after);

}  // namespace gapless::tools
