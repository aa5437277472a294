// gapless convert: snapshots to compact traces.
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/say.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ConvertArguments {
  std::vector<std::string> inputs;
  std::string output;
  std::string note;
  bool as_json = false;
};

// One name for each file, whatever it was called; of a pipe its own.
fs::path place_of(const fs::path& file) {
  std::error_code code;
  const fs::path place = fs::weakly_canonical(file, code);
  return code ? file : place;
}

// Where the trace of `input` goes. Throws InputError where that would lose something.
fs::path output_for(const std::string& input, const std::string& asked,
                    const std::set<fs::path>& written) {
  fs::path output = fs::path(input).replace_extension(".gtrace");
  if (!asked.empty()) {
    output = fs::is_directory(asked) ? fs::path(asked) / output.filename() : fs::path(asked);
  }
  std::error_code neither;  // is there, or is a file
  if (fs::equivalent(output, input, neither)) {
    throw InputError(input + ": is a gapless trace already, and would be overwritten");
  }
  if (written.contains(place_of(output))) {
    throw InputError(input + ": would overwrite " + output.string() +
                     ", which was written from another of these files");
  }
  return output;
}

// 0 of a pipe.
std::uintmax_t size_of(const std::string& input) {
  std::error_code code;
  const std::uintmax_t bytes = fs::file_size(input, code);
  return code ? 0 : bytes;
}

json convert(const std::string& input, const fs::path& output, const std::string& note) {
  std::vector<Trace> traces = load_traces(input);
  json devices = json::array();
  std::uint64_t events = 0;
  for (Trace& trace : traces) {
    if (!note.empty()) trace.source += "; " + note;
    for (const std::string& warning : trace.warnings) {
      say(stderr, "gapless: {}: warning: {}\n", input, warning);
    }
    events += trace.events.size();
    devices.push_back({{"name", trace.name},
                       {"device", trace.device},
                       {"events", trace.events.size()},
                       {"blocks", trace.blocks},
                       {"peak_allocated_bytes", peak_live_bytes(trace)},
                       {"warnings", trace.warnings}});
  }
  const std::string bytes = write_compact(traces);
  write_file(output.string(), bytes);
  return {{"input", input},
          {"input_bytes", size_of(input)},
          {"output", output.string()},
          {"output_bytes", bytes.size()},
          {"events", events},
          {"devices", devices}};
}

int run(const ConvertArguments& arguments) {
  if (!arguments.output.empty() && arguments.inputs.size() > 1 &&
      !fs::is_directory(arguments.output)) {
    throw InputError("--output: " + arguments.output +
                     " must be a folder where several files are converted");
  }
  json list = json::array();
  std::set<fs::path> written;
  const bool all_good = for_each_file(arguments.inputs, [&](const std::string& input) {
    const fs::path output = output_for(input, arguments.output, written);
    const json file = convert(input, output, arguments.note);
    written.insert(place_of(output));
    list.push_back(file);
    if (arguments.as_json) return;
    const std::size_t devices = file["devices"].size();
    say(is_standard_output(output) ? stderr : stdout, "{}: {} events on {} device{}, {} -> {}\n",
        output.string(), with_commas(file["events"]), devices, devices == 1 ? "" : "s",
        format_bytes(file["input_bytes"]), format_bytes(file["output_bytes"]));
  });
  if (arguments.as_json) fmt::print("{}\n", json_text(list, 1));
  return status_of(all_good, true);
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
      "  gapless convert a.pickle b.pickle -o traces/      into a folder\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line or file (the others are converted).");
  command->add_option("input", arguments->inputs, "Snapshots, or traces to write again")
      ->required();
  command->add_option("-o,--output", arguments->output, "The file or folder to write");
  command->add_option("--note", arguments->note, "Added to what the header says of the origin");
  command->add_flag("--json", arguments->as_json, "What was written, one JSON object per file");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
