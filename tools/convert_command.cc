// gapless convert: recordings of one format to another.
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/trace/load.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/say.h"
#include "tools/table.h"
#include "tools/trace_formats.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ConvertArguments {
  std::vector<std::string> inputs;
  std::string output;
  std::string format;  // empty: by the ending of the output
  std::string note;
  bool as_json = false;
};

// One name for each file, whatever it was called; of a pipe its own.
fs::path place_of(const fs::path& file) {
  std::error_code code;
  const fs::path place = fs::weakly_canonical(file, code);
  return code ? file : place;
}

// Where the traces of a file go.
struct Output {
  TraceFormat format = TraceFormat::gtrace;
  std::vector<fs::path> files;
};

// Throws InputError where writing there would lose something: a file that is to be read, or one
// that was written from another of them.
Output output_for(const std::string& input, const ConvertArguments& arguments,
                  const std::vector<Trace>& traces, const std::set<fs::path>& written) {
  Output output;
  fs::path place;
  if (const auto named = trace_format_named(arguments.format)) {
    output.format = *named;
  } else if (!arguments.output.empty() && !fs::is_directory(arguments.output)) {
    output.format = trace_format_of(arguments.output).value_or(TraceFormat::gtrace);
  }
  place = with_ending(input, output.format);
  if (fs::is_directory(arguments.output)) {
    place = fs::path(arguments.output) / place.filename();
  } else if (!arguments.output.empty()) {
    place = arguments.output;
  }
  output.files = files_of(place, output.format, traces);
  if (output.files.size() > 1 && fs::exists(place) && !fs::is_regular_file(place)) {
    throw InputError(input + ": holds " + std::to_string(traces.size()) +
                     " devices, which take a file each: " + place.string() + " is none");
  }
  for (const fs::path& file : output.files) {
    std::error_code neither;  // is there, or is a file
    if (fs::equivalent(file, input, neither)) {
      throw InputError(input + (output.format == TraceFormat::gtrace
                                    ? ": is a gapless trace already, and would be overwritten"
                                    : ": would be overwritten; name another file with --output"));
    }
    for (const std::string& other : arguments.inputs) {
      if (!fs::equivalent(file, other, neither)) continue;
      throw InputError(input + ": would overwrite " + other + ", which is to be read");
    }
    if (written.contains(place_of(file))) {
      throw InputError(input + ": would overwrite " + file.string() +
                       ", which was written from another of these files");
    }
  }
  return output;
}

// 0 of a pipe.
std::uintmax_t size_of(const std::string& input) {
  std::error_code code;
  const std::uintmax_t bytes = fs::file_size(input, code);
  return code ? 0 : bytes;
}

// What was written of one file, as JSON.
json convert(const std::string& input, const ConvertArguments& arguments,
             std::set<fs::path>& written_before) {
  std::vector<Trace> traces = load_recording(input);
  const Output output = output_for(input, arguments, traces, written_before);
  json devices = json::array();
  std::uint64_t events = 0;
  for (Trace& trace : traces) {
    if (!arguments.note.empty()) trace.source += "; " + arguments.note;
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
  const Written written = write_traces(traces, output.format, output.files);
  for (const std::string& note : written.notes) {
    say(stderr, "gapless: {}: note: {}\n", input, note);
  }
  json files = json::array();
  for (const fs::path& file : output.files) {
    written_before.insert(place_of(file));
    files.push_back(file.string());
  }
  return {{"input", input},     {"input_bytes", size_of(input)}, {"output", files.front()},
          {"outputs", files},   {"output_bytes", written.bytes}, {"events", events},
          {"devices", devices}, {"notes", written.notes}};
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
    const json file = convert(input, arguments, written);
    list.push_back(file);
    if (arguments.as_json) return;
    const std::size_t devices = file["devices"].size();
    std::string names;
    for (const auto& name : file["outputs"]) {
      names += (names.empty() ? "" : ", ") + name.get<std::string>();
    }
    say(is_standard_output(names) ? stderr : stdout, "{}: {} events on {} device{}, {} -> {}\n",
        names, with_commas(file["events"]), devices, devices == 1 ? "" : "s",
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
      "Convert recordings: PyTorch memory snapshots, logs of RMM's, CSV files of minimalloc's and\n"
      "gapless's own traces, told apart by what is in them. What each format holds, and what is\n"
      "lost: docs/traces.md.\n"
      "\n"
      "Examples:\n"
      "  gapless convert run.pickle                        writes run.gtrace beside it\n"
      "  gapless convert a.pickle b.pickle -o traces/      into a folder\n"
      "  gapless convert run.gtrace -o run.pickle          a snapshot for PyTorch's viewers\n"
      "  gapless convert rmm_log.dev0.csv --to perfetto    for ui.perfetto.dev\n"
      "  gapless convert run.pickle -o run.speedscope.json   what was live at the peak, by stack\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line or file (the others are converted).");
  command->add_option("input", arguments->inputs, "Recordings of any of these formats")->required();
  command->add_option("-o,--output", arguments->output,
                      "The file or folder to write; its ending says the format: .gtrace, .pickle,\n"
                      ".csv (minimalloc), .perfetto.json or .json, .speedscope.json");
  command
      ->add_option("--to", arguments->format,
                   "The format, whatever the ending: gtrace, pickle, minimalloc, perfetto or\n"
                   "speedscope")
      ->check(CLI::IsMember(trace_format_names()));
  command->add_option("--note", arguments->note, "Added to what the header says of the origin");
  command->add_flag("--json", arguments->as_json, "What was written, one JSON object per file");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
