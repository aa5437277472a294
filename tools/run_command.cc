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
#include "tools/program_options.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct RunArguments {
  std::string conf;
  ProgramOptions program;
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
  check_json_file(arguments.program);
  const std::string library = preload_library().string();
  Variables variables = {{"LD_PRELOAD", in_front(library, std::getenv("LD_PRELOAD"))}};
  if (!arguments.conf.empty()) variables.emplace_back("GAPLESS_CONF", arguments.conf);
  const std::vector<std::string>& command = arguments.program.command;
  if (!arguments.program.json) become_program(command, variables);
  const auto begin = std::chrono::steady_clock::now();
  const Ended ended = run_program(command, variables);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  json report = {{"command", command}, {"exit_status", ended.status()},
                 {"signal", nullptr},  {"seconds", took.count()},
                 {"library", library}, {"options", options_in(arguments.conf)}};
  if (ended.by_signal) report["signal"] = ended.code;
  write_json(arguments.program, json_text(report, 1));
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
  add_program(
      *command, arguments->program,
      "When the program has ended, write to this file how, after how long, and "
      "with which library and options it ran; without one, to standard output",
      [arguments] { return run(*arguments); }, status);
}

}  // namespace gapless::tools
