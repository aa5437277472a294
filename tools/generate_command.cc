// gapless generate: traces of programs whose sizes never repeat.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "bench/replay/synthetic.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/progress.h"
#include "tools/say.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

struct GenerateArguments {
  std::string kind;
  std::string output;
  bench::SyntheticOptions options;
  bool as_json = false;
};

int run(const GenerateArguments& arguments) {
  Progress progress;  // 10,000 steps of varlen take half a minute, most of it to write them
  progress.show("making " + arguments.kind, 0);
  const Trace trace = bench::synthetic_trace(arguments.kind, arguments.options);
  const std::string output =
      arguments.output.empty() ? arguments.kind + ".gtrace" : arguments.output;
  progress.show("writing " + output, 0.2);
  const std::string bytes = write_compact({trace});
  progress.clear();
  write_file(output, bytes);
  if (arguments.as_json) {
    const nlohmann::json made = {{"output", output},
                                 {"output_bytes", bytes.size()},
                                 {"kind", arguments.kind},
                                 {"steps", arguments.options.steps},
                                 {"seed", arguments.options.seed},
                                 {"batch", arguments.options.batch},
                                 {"events", trace.events.size()},
                                 {"blocks", trace.blocks},
                                 {"peak_allocated_bytes", peak_live_bytes(trace)}};
    fmt::print("{}\n", json_text(made, 1));
    return kExitOk;
  }
  say(is_standard_output(output) ? stderr : stdout, "{}: {} events, {} live at the peak\n", output,
      with_commas(trace.events.size()), format_bytes(peak_live_bytes(trace)));
  return kExitOk;
}

}  // namespace

void add_generate(CLI::App& app, int& status) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand(
      "generate",
      "Make the trace of a program whose sizes never repeat:\n"
      "  varlen   training with sequences of random length\n"
      "  metrics  the same, and of each layer and step a small tensor is kept for good\n"
      "  moe      training with experts and random token counts\n"
      "  serve    requests of random length with growing caches\n"
      "  serve-concat  the same with caches that grow by concatenation in every step\n"
      "\n"
      "Example:\n"
      "  gapless generate moe --steps 300 --seed 7 -o moe.gtrace && gapless replay moe.gtrace\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line, or a file that cannot be written.");
  command->add_option("kind", arguments->kind, "varlen, metrics, moe, serve or serve-concat")
      ->required()
      ->check(CLI::IsMember(bench::synthetic_kinds()));
  command->add_option("--steps", arguments->options.steps, "Steps of the program")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option("--seed", arguments->options.seed, "Another seed, another trace")
      ->capture_default_str()
      ->check(whole_number());
  CLI::Option* batch =
      command
          ->add_option(
              "--batch", arguments->options.batch,
              "Sequences in a step of varlen and metrics: 8 take about 10 GiB, 64 about 65 GiB")
          ->capture_default_str()
          ->check(CLI::Range(1, 1024));
  command->add_option("-o,--output", arguments->output, "The file to write (default: KIND.gtrace)");
  command->add_flag("--json", arguments->as_json, "What was made, as a JSON object");
  command->callback([arguments, batch, &status] {
    if (batch->count() != 0 && arguments->kind != "varlen" && arguments->kind != "metrics") {
      throw CLI::ValidationError("--batch", "is for varlen and metrics only");
    }
    status = run(*arguments);
  });
}

}  // namespace gapless::tools
