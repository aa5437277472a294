// Where a program is told its batch size, its length, its precision: what `advise` can change.
//
//   --per_device_train_batch_size 2        a word of the command
//   --batch-size, 8 where not given        an option that the program's own parser knows
//   train.yaml: gradient_checkpointing     a key of a configuration file that the command names
//
// By the names that people give such options. What was changed is looked for in the changed run, so
// a name that means something else leads to "not known", or to a run that says what it took.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/advise/attempt.h"
#include "tools/advise/config_file.h"
#include "tools/advise/program_facts.h"

namespace gapless::tools {

enum class Role {
  batch,
  accumulation,
  length,
  checkpointing,
  bf16,
  optimizer,
  lora_rank,
  four_bit,
  eight_bit,
  zero_stage,
  offload,
  bucket,
};

struct SettingPlace {
  enum class Kind { option, word, file };
  Kind kind = Kind::word;
  std::vector<std::string> names;  // of an option; the first is the one to use
  std::string name;                // that, or the key in a file
  std::string path;                // of a file, as the command names it
  nlohmann::json value;            // what it is; null where it is not set
  bool takes_value = true;
  std::vector<std::string> choices;
};

class Settings {
 public:
  /// Reads the configuration files that the command names. Throws InputError where one that is
  /// there cannot be read.
  Settings(std::vector<std::string> command, ProgramFacts facts);

  [[nodiscard]] std::optional<SettingPlace> find(Role role) const;
  /// The optimizer it takes whose name has these parts, or which TrainingArguments call so, where
  /// that is known.
  [[nodiscard]] std::optional<std::string> optimizer_with(const SettingPlace& place,
                                                          const std::vector<std::string>& parts,
                                                          const std::string& trainers) const;
  /// "--batch-size 8 -> 4"
  [[nodiscard]] std::string text(const SettingPlace& place, const std::string& value) const;
  [[nodiscard]] const std::vector<ConfigFile>& files() const { return files_; }

 private:
  [[nodiscard]] std::optional<SettingPlace> in_words(Role role) const;
  [[nodiscard]] std::optional<SettingPlace> in_options(Role role, bool only_named) const;
  [[nodiscard]] std::optional<SettingPlace> in_files(Role role) const;

  std::vector<std::string> command_;
  ProgramFacts facts_;
  std::vector<ConfigFile> files_;
};

/// In what is to be run. "true" for what is a switch. Throws InputError where a file cannot be
/// changed.
void set(Attempt& attempt, const SettingPlace& place, const std::string& value);

/// As that place takes it: "true" is "True", "1" or nothing at all, "bf16" is "bfloat16".
std::optional<std::string> spelled(const SettingPlace& place, Role role, const std::string& value);

}  // namespace gapless::tools
