// What a search varies: settings of the command line, or values in files that it names.
//
//   --vary batch-size=1:256:8                  python train.py --batch-size {batch-size}
//   --vary precision=fp32,bf16                 python train.py --precision={precision}
//   --vary train.yaml:trainer.batch=1:64       python train.py --config train.yaml
//                                                -> .../train.yaml, a copy with another value
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gapless::tools {

struct Varied {
  static constexpr std::size_t kMostValues = 100'000;

  std::string name;  // as it was given
  std::string file;  // empty: `name` stands in the command
  std::string key;   // in the file
  std::string text;  // the values, as they were given
  std::vector<std::string> values;
  /// Of the same; empty where they do not ascend: then every one is tried.
  std::vector<double> numbers;

  [[nodiscard]] bool ascends() const { return !numbers.empty(); }
  /// A number where it is one.
  [[nodiscard]] nlohmann::ordered_json json_value(std::size_t index) const;
};

/// NAME=MIN:MAX, NAME=MIN:MAX:STEP or NAME=A,B,C. Throws InputError.
Varied read_varied(const std::string& text);

/// A place in the grid: an index into each one's values.
using Setting = std::vector<std::size_t>;

/// "batch-size 48, seq-len 512"
std::string text_of(const std::vector<Varied>& varied, const Setting& setting);

/// A command with {name} where a value belongs, and names of files that are varied.
class VariedCommand {
 public:
  /// Throws InputError where a name or a file is not in it, where it has a {name} that nobody
  /// varies, or where a file has no such key.
  VariedCommand(std::vector<std::string> words, std::vector<Varied> varied);

  [[nodiscard]] const std::vector<Varied>& varied() const { return varied_; }
  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
  /// The command with those values. Files are still those that were named.
  [[nodiscard]] std::vector<std::string> with(const Setting& setting) const;
  /// The same, with copies of the files that are varied, and the probe's own folder, in that one.
  [[nodiscard]] std::vector<std::string> with(const Setting& setting,
                                              const std::filesystem::path& folder) const;

 private:
  struct File {
    std::string path;
    std::string text;
    std::vector<std::size_t> varied;
  };

  void check_names() const;
  void read_files();

  std::vector<std::string> words_;
  std::vector<Varied> varied_;
  std::vector<File> files_;
};

}  // namespace gapless::tools
