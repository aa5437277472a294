// KeptResults: results of probes in a file, so that a search that was broken off goes on.
//
//   { "gapless search": 1, "probes": [ { "of": {command, GPUs, allocator, files, version}, ... } ]
//   }
//
// One is used where everything that it depends on, as far as that is known, is the same; what is in
// the file for other searches stays. Only "fits" and "fails" are kept.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/search/probe_result.h"

namespace gapless::tools {

class KeptResults {
 public:
  /// None are kept where the name is empty. Throws InputError where the file holds something else.
  explicit KeptResults(std::string file);

  [[nodiscard]] std::optional<ProbeResult> find(const nlohmann::json& of) const;
  /// Writes the file. Throws InputError.
  void keep(const nlohmann::json& of, const ProbeResult& result);

 private:
  std::string file_;
  std::map<std::string, nlohmann::json> results_;  // by what they are of
};

/// {"train.py": "5 bytes, 9f86d081884c7d65"} of every word of a command that names a file: a
/// result is not one of what the file was before.
class FileMarks {
 public:
  nlohmann::json of(const std::vector<std::string>& words);

 private:
  std::map<std::string, nlohmann::json> known_;
};

}  // namespace gapless::tools
