// gapless diff: what grew between two recordings or dumps.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/base/json_text.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/inspect/difference.h"
#include "tools/inspect/reports_of_file.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct DiffArguments {
  std::string before;
  std::string after;
  std::string at;
  std::string by = "site";
  std::size_t rows = 12;
  bool as_json = false;
};

// The report of the same device, or the only one there is.
const MomentReport* counterpart(const MomentReport& of, const std::vector<MomentReport>& among) {
  if (among.size() == 1) return &among.front();
  for (const MomentReport& report : among) {
    if (report.has_events == of.has_events && report.device == of.device) return &report;
  }
  return nullptr;
}

int run(const DiffArguments& arguments) {
  MomentOptions options;
  options.at = *read_moment(arguments.at);
  options.by = group_by(arguments.by);
  options.work = CureWork{false, false};
  const std::vector<MomentReport> before = reports_of_file(arguments.before, options);
  const std::vector<MomentReport> after = reports_of_file(arguments.after, options);
  json list = json::array();
  bool first = true;
  for (const MomentReport& report : after) {
    const MomentReport* const was = counterpart(report, before);
    if (was == nullptr) {
      throw InputError(fmt::format("{}: has nothing of gpu {}, which {} has", arguments.before,
                                   report.device, arguments.after));
    }
    if (arguments.as_json) {
      list.push_back(difference_json(*was, report, options.by));
      continue;
    }
    fmt::print("{}{}", first ? "" : "\n",
               difference_text(*was, report, options.by, arguments.rows, colour_wanted(),
                               terminal_columns(STDOUT_FILENO)));
    first = false;
  }
  if (arguments.as_json) fmt::print("{}\n", json_text(list, 1));
  return kExitOk;
}

}  // namespace

void add_diff(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DiffArguments>();
  CLI::App* command = app.add_subcommand(
      "diff",
      "Say what grew between two recordings or dumps, by the lines that asked for it.\n"
      "\n"
      "Examples:\n"
      "  gapless diff step10.pickle step20.pickle --at end\n"
      "  gapless diff before.json after.json --by size\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line or file.");
  command->add_option("before", arguments->before, "A PyTorch snapshot, gapless trace or dump")
      ->required();
  command->add_option("after", arguments->after, "The one to compare it with")->required();
  command
      ->add_option("--at", arguments->at,
                   "The moment of both: peak, end, oom or the number of an event. Default: oom\n"
                   "where a run ended with it, else peak")
      ->check(moment_check());
  command->add_option("--by", arguments->by, "Group what is live by")
      ->capture_default_str()
      ->check(CLI::IsMember(group_names()));
  command->add_option("--rows", arguments->rows, "How many that grew, and that shrank, to show")
      ->capture_default_str()
      ->check(whole_number());
  command->add_flag("--json", arguments->as_json, "One JSON object per device, with every group");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
