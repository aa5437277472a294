// gapless convert: snapshots to compact traces.
#include <filesystem>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

struct ConvertArguments {
  std::vector<std::string> inputs;
  std::string output;
  std::string note;
};

int run(const ConvertArguments& arguments) {
  namespace fs = std::filesystem;
  if (!arguments.output.empty() && arguments.inputs.size() > 1 &&
      !fs::is_directory(arguments.output)) {
    throw InputError("--output: " + arguments.output +
                     " must be a folder where several files are converted");
  }
  for (const std::string& input : arguments.inputs) {
    std::vector<Trace> traces = load_traces(input);
    fs::path output = fs::path(input).replace_extension(".gtrace");
    if (!arguments.output.empty()) {
      output = fs::is_directory(arguments.output) ? fs::path(arguments.output) / output.filename()
                                                  : fs::path(arguments.output);
    }
    if (fs::exists(output) && fs::equivalent(output, input)) {
      throw InputError(input + ": is a gapless trace already, and would be overwritten");
    }
    std::uint64_t events = 0;
    for (Trace& trace : traces) {
      if (!arguments.note.empty()) trace.source += "; " + arguments.note;
      for (const std::string& warning : trace.warnings) {
        fmt::print(stderr, "gapless: {}: warning: {}\n", input, warning);
      }
      events += trace.events.size();
    }
    const std::string bytes = write_compact(traces);
    write_file(output.string(), bytes);
    fmt::print("{}: {} events on {} device{}, {} -> {}\n", output.string(), with_commas(events),
               traces.size(), traces.size() == 1 ? "" : "s", format_bytes(fs::file_size(input)),
               format_bytes(bytes.size()));
  }
  return kExitOk;
}

}  // namespace

void add_convert(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command = app.add_subcommand(
      "convert",
      "Convert PyTorch memory snapshots to gapless's compact trace format.\n"
      "\n"
      "Examples:\n"
      "  gapless convert run.pickle                        writes run.gtrace beside it\n"
      "  gapless convert a.pickle b.pickle -o traces/      into a folder");
  command->add_option("input", arguments->inputs, "Snapshots, or traces to write again")
      ->required();
  command->add_option("-o,--output", arguments->output, "The file or folder to write");
  command->add_option("--note", arguments->note, "Added to what the header says of the origin");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
