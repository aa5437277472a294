// gapless run: a program with gapless as PyTorch's CUDA allocator.
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/device/options.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/launch.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct RunArguments {
  std::string conf;
  bool as_json = false;
  std::string json_file;  // empty: standard output
  std::vector<std::string> command;
};

// What the program had as options: --conf, or GAPLESS_CONF.
json options_in(const std::string& conf) {
  const Options options = conf.empty() ? options_from_environment() : read_options(conf);
  json values = json::object();
  for (const OptionFacts& facts : option_table()) {
    values[std::string(facts.name)] = option_text(options, facts.name);
  }
  return values;
}

int run(const RunArguments& arguments) {
  check_conf(arguments.conf);
  check_writable(arguments.json_file, "--json");
  const std::string library = preload_library().string();
  Variables variables = {{"LD_PRELOAD", in_front(library, std::getenv("LD_PRELOAD"))}};
  if (!arguments.conf.empty()) variables.emplace_back("GAPLESS_CONF", arguments.conf);
  if (!arguments.as_json) become_program(arguments.command, variables);
  const auto begin = std::chrono::steady_clock::now();
  const Ended ended = run_program(arguments.command, variables);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  json report = {{"command", arguments.command},
                 {"exit_status", ended.status()},
                 {"signal", nullptr},
                 {"seconds", took.count()},
                 {"library", library},
                 {"options", options_in(arguments.conf)}};
  if (ended.by_signal) report["signal"] = ended.code;
  const std::string text = json_text(report, 1) + "\n";
  if (arguments.json_file.empty()) {
    fmt::print("{}", text);
  } else {
    write_file(arguments.json_file, text);
  }
  return ended.status();
}

}  // namespace

void add_run(CLI::App& app, int& status) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand(
      "run",
      "Run a program with gapless as PyTorch's CUDA allocator, in all its processes.\n"
      "\n"
      "Examples:\n"
      "  gapless run -- python train.py\n"
      "  gapless run --conf limit:14GiB,spill:4GiB -- torchrun --nproc-per-node 2 train.py\n"
      "\n"
      "Exit status: the program's own (128 and the signal that ended it); 2 where it cannot be\n"
      "started.");
  command->add_option("-c,--conf", arguments->conf, "Options, as GAPLESS_CONF: key:value,...");
  CLI::Option* const to_json =
      command
          ->add_option("--json", arguments->json_file,
                       "When the program has ended, write to this file how, after how long, and "
                       "with which library and options it ran; without one, to standard output")
          ->expected(0, 1);
  command->add_option("command", arguments->command, "The program and its arguments, after --")
      ->required();
  command->positionals_at_end();
  command->callback([arguments, to_json, &status] {
    arguments->as_json = to_json->count() != 0;
    status = run(*arguments);
  });
}

}  // namespace gapless::tools
