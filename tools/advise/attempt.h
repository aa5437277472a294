// The program with something changed: what `advise` runs to see whether a remedy helps.
//
//   --per_device_train_batch_size 2        ->  --per_device_train_batch_size 1
//   ds.json: zero_optimization.stage: 2    ->  3, in a copy of the file, which the command names
//   PYTORCH_CUDA_ALLOC_CONF, SIMGPU_CHANGE     (simgpu/python/change_program.py)
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/launch.h"

namespace gapless::tools {

struct Attempt {
  std::string allocator;
  std::vector<std::string> command;
  Variables variables;
  std::vector<std::string> hooks;            // words of SIMGPU_CHANGE
  std::map<std::string, std::string> files;  // named by the command -> its new text
  /// What is otherwise, a line each: "ds.json: zero_optimization.stage: 2 -> 3".
  std::vector<std::string> changes;
};

/// The command with copies of the changed files in that folder, in the place of those.
std::vector<std::string> command_of(const Attempt& attempt, const std::filesystem::path& folder);

/// What it is started with, beside what simulates.
Variables variables_of(const Attempt& attempt);

/// The command as one would type it.
std::string shell_text(const std::vector<std::string>& command);

}  // namespace gapless::tools
