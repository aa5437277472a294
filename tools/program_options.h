// What commands that run a program have in common: the program itself, after --, and --json.
//
//   gapless run --json how.json -- python train.py
//               \_ to a file; or to standard output where no file is named
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace gapless::tools {

struct ProgramOptions {
  std::vector<std::string> command;
  bool json = false;      // asked for
  std::string json_file;  // standard output where empty

  /// Whether standard output is the JSON's alone.
  [[nodiscard]] bool json_on_output() const { return json && json_file.empty(); }
};

/// Adds both, the program as the last of the command's arguments; `run` gives the exit status.
void add_program(CLI::App& command, ProgramOptions& options, const std::string& json_help,
                 std::function<int()> run, int& status);

/// Throws InputError, naming the option, where --json's file cannot be written.
void check_json_file(const ProgramOptions& options);
/// Writes a document where it is asked for. Throws InputError.
void write_json(const ProgramOptions& options, const std::string& text);

}  // namespace gapless::tools
