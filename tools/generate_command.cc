// gapless generate: traces of programs whose sizes never repeat.
#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "allocator/base/files.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "bench/replay/synthetic.h"
#include "tools/commands.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

struct GenerateArguments {
  std::string kind;
  std::string output;
  bench::SyntheticOptions options;
};

int run(const GenerateArguments& arguments) {
  const Trace trace = bench::synthetic_trace(arguments.kind, arguments.options);
  const std::string output =
      arguments.output.empty() ? arguments.kind + ".gtrace" : arguments.output;
  write_file(output, write_compact({trace}));
  fmt::print("{}: {} events, {} live at the peak\n", output, with_commas(trace.events.size()),
             format_bytes(peak_live_bytes(trace)));
  return kExitOk;
}

}  // namespace

void add_generate(CLI::App& app, int& status) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand(
      "generate",
      "Make the trace of a program whose sizes never repeat:\n"
      "  varlen   training with sequences of random length\n"
      "  moe      training with experts and random token counts\n"
      "  serve    requests of random length with growing caches\n"
      "\n"
      "Example:\n"
      "  gapless generate moe --steps 300 --seed 7 -o moe.gtrace && gapless replay moe.gtrace");
  command->add_option("kind", arguments->kind, "varlen, moe or serve")
      ->required()
      ->check(CLI::IsMember(bench::synthetic_kinds()));
  command->add_option("--steps", arguments->options.steps, "Steps of the program")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option("--seed", arguments->options.seed, "Another seed, another trace")
      ->capture_default_str();
  CLI::Option* batch =
      command
          ->add_option("--batch", arguments->options.batch,
                       "Sequences in a step of varlen: 8 take about 10 GiB, 64 about 65 GiB")
          ->capture_default_str()
          ->check(CLI::Range(1, 1024));
  command->add_option("-o,--output", arguments->output, "The file to write (default: KIND.gtrace)");
  command->callback([arguments, batch, &status] {
    if (batch->count() != 0 && arguments->kind != "varlen") {
      throw CLI::ValidationError("--batch", "is for varlen only");
    }
    status = run(*arguments);
  });
}

}  // namespace gapless::tools
