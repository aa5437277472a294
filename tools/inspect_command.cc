// gapless inspect: where the memory is, what is lost between, why, and what would help.
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/report/address.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/inspect/inspect_json.h"
#include "tools/inspect/inspect_text.h"
#include "tools/inspect/moment_report.h"
#include "tools/inspect/ranks.h"
#include "tools/inspect/reports_of_file.h"
#include "tools/progress.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct InspectArguments {
  std::vector<std::string> files;
  std::string at;
  std::string by = "site";
  std::string tried = "auto";
  std::string rules;
  std::string address;  // as typed
  std::size_t rows = 12;
  std::size_t blocks = 10;
  std::size_t segments = 8;
  bool as_json = false;
};

// "0x7f12..." or the same in decimal.
std::optional<std::uint64_t> read_address(const std::string& text) {
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const char* const begin = text.data() + (hexadecimal ? 2 : 0);
  const char* const end = text.data() + text.size();
  std::uint64_t address = 0;
  const auto [stop, error] = std::from_chars(begin, end, address, hexadecimal ? 16 : 10);
  if (error != std::errc{} || stop != end) return {};
  return address;
}

// Groups of one recording, or recordings beside each other.
constexpr const char* kByRank = "rank";

std::vector<std::string> ways_to_group() {
  std::vector<std::string> names = group_names();
  names.emplace_back(kByRank);
  return names;
}

// Of ranks nothing is shown that settings were tried for, so by itself none is.
std::optional<CureWork> read_tried(const std::string& text, bool by_rank) {
  if (text == "auto" && !by_rank) return {};
  return text == "all" ? CureWork{true, true} : CureWork{false, false};
}

// What is said of a file, piece by piece.
class Inspection {
 public:
  explicit Inspection(const InspectArguments& arguments)
      : arguments_(arguments),
        address_(read_address(arguments.address)),
        by_rank_(arguments.by == kByRank) {
    options_.at = *read_moment(arguments.at);
    options_.by = by_rank_ ? GroupBy::site : group_by(arguments.by);
    options_.blocks = arguments.blocks;
    options_.work = read_tried(arguments.tried, by_rank_);
    if (!arguments.rules.empty()) {
      options_.rules = read_kind_rules(read_file(arguments.rules), arguments.rules);
    }
    text_ = {arguments.rows, arguments.segments, options_.by, colour_wanted(),
             terminal_columns(STDOUT_FILENO)};
  }

  void file(const std::string& path) {
    if (address_) {
      at_address(load_state(path, address_));
      return;
    }
    Progress progress;
    options_.progress = [&](const std::string& name, double fraction) {
      progress.show(name + "  what would help", fraction);
    };
    const std::vector<MomentReport> reports = reports_of_file(path, options_);
    progress.clear();
    for (const MomentReport& report : reports) {
      if (report.has_events || reports.size() == 1) ranks_.push_back(rank_of(report, path));
      if (!by_rank_) tell(report);
    }
  }

  // What is said when all files were read: of several, how they compare.
  void end() {
    const bool several = ranks_.size() > 1;
    if (arguments_.as_json) {
      const json all = by_rank_ && !address_ ? ranks_json(compare_ranks(std::move(ranks_))) : list_;
      fmt::print("{}\n", json_text(all, 1));
    } else if (several || (by_rank_ && !ranks_.empty())) {
      fmt::print("{}{}", first_ ? "" : "\n",
                 ranks_text(compare_ranks(std::move(ranks_)), text_.colour, text_.columns));
    }
  }

 private:
  void tell(const MomentReport& report) {
    if (arguments_.as_json) {
      list_.push_back(inspect_json(report));
      return;
    }
    fmt::print("{}{}", first_ ? "" : "\n", inspect_text(report, text_));
    first_ = false;
  }

  void at_address(const MemoryState& state) {
    const AddressReport report = report_address(state, *address_);
    if (arguments_.as_json) {
      list_.push_back(inspect_json(state, report));
      return;
    }
    fmt::print("{}{}\n{}", first_ ? "" : "\n", state.name, to_text(report));
    first_ = false;
  }

  const InspectArguments& arguments_;
  std::optional<std::uint64_t> address_;
  MomentOptions options_;
  InspectText text_;
  bool by_rank_;
  json list_ = json::array();
  std::vector<Rank> ranks_;
  bool first_ = true;
};

int run(const InspectArguments& arguments) {
  Inspection inspection(arguments);
  const bool all_good =
      for_each_file(arguments.files, [&](const std::string& path) { inspection.file(path); });
  inspection.end();
  return status_of(all_good, true);
}

}  // namespace

void add_inspect(CLI::App& app, int& status) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand(
      "inspect",
      "Say what is wrong with a program's use of GPU memory and what would help, and show what is\n"
      "requested, allocated, active and reserved, what it is, which lines asked for it, and what\n"
      "is lost between. Recordings are looked at where most is allocated, or where they ended out\n"
      "of memory; they are replayed with other settings and allocators to see what each saves.\n"
      "\n"
      "Examples:\n"
      "  gapless inspect snapshot.pickle\n"
      "  gapless inspect run.gtrace --at end --by module\n"
      "  gapless inspect rank*.pickle --by rank                 who stands out, and by what\n"
      "  gapless inspect snapshot.pickle --try none --json\n"
      "  gapless inspect dump.json --address 0x7f1200000400     what is, or was, there\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line or file (the others are shown).");
  command
      ->add_option("file", arguments->files,
                   "PyTorch snapshots, gapless dumps or traces, other recordings (docs/traces.md)")
      ->required();
  command
      ->add_option("--at", arguments->at,
                   "The moment: peak (of what is allocated), end, oom (the last request that\n"
                   "failed) or the number of an event. Default: oom where the run ended with it,\n"
                   "else peak; files without events have one moment only")
      ->check(moment_check());
  command
      ->add_option("--by", arguments->by,
                   "Group what is live by. rank: a line for each recording instead, and which of\n"
                   "them stands out; it ends what is said of several recordings as well")
      ->capture_default_str()
      ->check(CLI::IsMember(ways_to_group()));
  command
      ->add_option("--try", arguments->tried,
                   "Settings to replay the recording with: all, none, or auto: what takes about a\n"
                   "minute")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "all", "none"}));
  command->add_option(
      "--kinds", arguments->rules,
      "A JSON file with rules of your own for what memory is:\n"
      "[{\"frame\": \"cache.py\", \"is\": \"key-value cache\"}, ...]; the first whose text\n"
      "is in a frame of a block's stack decides");
  command->add_option("--rows", arguments->rows, "How many groups to show")
      ->capture_default_str()
      ->check(whole_number());
  command->add_option("--blocks", arguments->blocks, "How many of the biggest live blocks to show")
      ->capture_default_str()
      ->check(whole_number());
  command->add_option("--segments", arguments->segments, "How many segments to show")
      ->capture_default_str()
      ->check(whole_number());
  command
      ->add_option("--address", arguments->address,
                   "Say what is at that address, and what was there before, as far as the file\n"
                   "tells: a snapshot's history, what checks remember (docs/checks.md)")
      ->check([](const std::string& text) {
        return read_address(text) ? ""
                                  : "\"" + text + "\": expected an address such as 0x7f1200000400";
      });
  command->add_flag("--json", arguments->as_json,
                    "One JSON object per device and file, with every segment");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
