#include "tools/program_options.h"

#include <utility>

#include <fmt/format.h>

#include "allocator/base/files.h"
#include "tools/inputs.h"

namespace gapless::tools {

void add_program(CLI::App& command, ProgramOptions& options, const std::string& json_help,
                 std::function<int()> run, int& status) {
  CLI::Option* const to_json =
      command.add_option("--json", options.json_file, json_help)->expected(0, 1);
  command.add_option("command", options.command, "The program and its arguments, after --")
      ->required();
  command.positionals_at_end();
  command.callback([&options, to_json, run = std::move(run), &status] {
    options.json = to_json->count() != 0;
    status = run();
  });
}

void check_json_file(const ProgramOptions& options) { check_writable(options.json_file, "--json"); }

void write_json(const ProgramOptions& options, const std::string& text) {
  if (!options.json) return;
  if (options.json_file.empty()) {
    fmt::print("{}\n", text);
  } else {
    write_file(options.json_file, text + "\n");
  }
}

}  // namespace gapless::tools
