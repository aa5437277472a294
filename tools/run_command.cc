// gapless run: a program with gapless as PyTorch's CUDA allocator.
#include <cstdlib>

#include "allocator/base/error.h"
#include "allocator/device/options.h"
#include "tools/commands.h"
#include "tools/launch.h"

namespace gapless::tools {
namespace {

void check_options(const std::string& text) {
  std::vector<std::string> warnings;
  (void)parse_options(text, warnings);
  if (!warnings.empty()) throw InputError("--conf: " + warnings.front());
}

}  // namespace

void add_run(CLI::App& app, int& /*status*/) {
  auto conf = std::make_shared<std::string>();
  auto program = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand(
      "run",
      "Run a program with gapless as PyTorch's CUDA allocator, in all its processes.\n"
      "\n"
      "Examples:\n"
      "  gapless run -- python train.py\n"
      "  gapless run --conf limit:14GiB,spill:4GiB -- torchrun --nproc-per-node 2 train.py\n"
      "\n"
      "Exit status: the program's own; 2 where it cannot be started.");
  command->add_option("-c,--conf", *conf, "Options, as GAPLESS_CONF: key:value,...");
  command->add_option("command", *program, "The program and its arguments, after --")->required();
  command->positionals_at_end();
  command->callback([conf, program] {
    check_options(*conf);
    Variables variables = {
        {"LD_PRELOAD", in_front(preload_library().string(), std::getenv("LD_PRELOAD"))}};
    if (!conf->empty()) variables.emplace_back("GAPLESS_CONF", *conf);
    become_program(*program, variables);
  });
}

}  // namespace gapless::tools
