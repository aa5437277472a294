// gapless fit: the smallest GPU a recorded run completes on.
#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/json_text.h"
#include "allocator/base/parallel.h"
#include "bench/replay/fit.h"
#include "bench/replay/in_torch.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/progress.h"
#include "tools/recorded_run.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct FitArguments {
  std::vector<std::string> traces;
  std::string allocators = "gapless,native,expandable";
  int passes = bench::kPasses;
  std::string settings;
  bool as_json = false;
};

struct FitRow {
  const RecordedRun* run = nullptr;
  std::string allocator;
  std::uint64_t peak_allocated_bytes = 0;
  std::optional<bench::Fit> fit;  // nothing: it completes on no GPU

  // The answer, where there is one.
  [[nodiscard]] std::optional<std::uint64_t> least_bytes() const {
    if (!fit || run->end) return {};
    return fit->least_bytes;
  }
  // It needs that at least: of a run whose end nobody knows.
  [[nodiscard]] std::uint64_t at_least_bytes() const {
    const std::uint64_t needs = run->end ? run->end->needs_bytes : peak_allocated_bytes;
    return fit ? std::max(needs, fit->lowest_bytes) : needs;
  }
  [[nodiscard]] std::optional<double> over_percent() const {
    if (!least_bytes()) return {};
    if (peak_allocated_bytes == 0) return 0;
    return (static_cast<double>(*least_bytes()) / static_cast<double>(peak_allocated_bytes) - 1) *
           100;
  }
  [[nodiscard]] bool has_smaller() const {
    return least_bytes() && fit->lowest_bytes < fit->least_bytes;
  }
};

json to_json(const FitRow& row, const FitArguments& arguments) {
  json object = {{"trace", row.run->trace.name},
                 {"device", row.run->trace.device},
                 {"allocator", row.allocator},
                 {"passes", arguments.passes},
                 {"peak_allocated_bytes", row.peak_allocated_bytes},
                 {"min_capacity_bytes", nullptr},
                 {"over_percent", nullptr},
                 {"larger_capacities_tried", nullptr},
                 {"lowest_capacity_bytes", nullptr}};
  row.run->tell(object);
  if (row.fit) {
    object["larger_capacities_tried"] = row.fit->tried_above;
    object["lowest_capacity_bytes"] = row.fit->lowest_bytes;
  }
  if (row.least_bytes()) {
    object["min_capacity_bytes"] = *row.least_bytes();
    object["over_percent"] = *row.over_percent();
  } else {
    object["at_least_bytes"] = row.at_least_bytes();
  }
  return object;
}

std::string capacity_text(const FitRow& row) {
  if (row.least_bytes()) return format_bytes(*row.least_bytes());
  if (row.fit || row.run->end) return "at least " + format_bytes(row.at_least_bytes());
  return "more than " + format_bytes(bench::kLargestGpuBytes);
}

void print_table(const std::vector<FitRow>& rows, const FitArguments& arguments) {
  using Align = Table::Align;
  Table table({{"trace", Align::left},
               {"allocator", Align::left},
               {"peak allocated"},
               {"least capacity"},
               {"over"}});
  const RecordedRun* before = nullptr;
  for (const FitRow& row : rows) {
    if (before != nullptr && before != row.run) table.gap();
    const auto over = row.over_percent();
    table.add({{before == row.run ? "" : row.run->name()},
               {row.allocator},
               {format_bytes(row.peak_allocated_bytes)},
               {capacity_text(row), row.least_bytes() ? Colour::none : Colour::bad},
               {over ? fmt::format("{:.2f} %", *over) : "-", !over        ? Colour::none
                                                             : *over <= 1 ? Colour::good
                                                             : *over >= 5 ? Colour::bad
                                                                          : Colour::none}});
    before = row.run;
  }
  fmt::print("{}\n", table.text(colour_wanted()));
  before = nullptr;
  for (const FitRow& row : rows) {
    if (const std::string note = row.run->note(); before != row.run && !note.empty()) {
      fmt::print("{}\n", paragraph(note));
    }
    before = row.run;
    if (!row.has_smaller()) continue;
    fmt::print("{}\n", paragraph(fmt::format(
                           "{} with {} completes in {} too, but not in every size between: when it "
                           "runs out, and so gives its cache back, decides what fits later.",
                           row.run->name(), row.allocator, format_bytes(row.fit->lowest_bytes))));
  }
  fmt::print(
      "{}", paragraph(fmt::format(
                "Least capacity: {} in a row complete with it and with every larger one that was "
                "tried, and do not with 2 MiB less. What the CUDA context and libraries take (some "
                "500 MiB) comes on top.",
                arguments.passes == 1 ? "1 pass" : fmt::format("{} passes", arguments.passes))));
}

std::vector<FitRow> fit_all(const std::vector<RecordedRun>& runs,
                            const std::vector<std::string>& allocators,
                            const FitArguments& arguments) {
  std::vector<FitRow> rows;
  for (const RecordedRun& run : runs) {
    for (const std::string& allocator : allocators) {
      rows.push_back({&run, allocator, peak_live_bytes(run.trace), {}});
    }
  }
  // PyTorch's own allocators run in processes, which a program of one thread starts more safely.
  const bool starts_processes =
      std::any_of(allocators.begin(), allocators.end(), bench::is_in_torch);
  const std::size_t threads = starts_processes ? 1 : std::thread::hardware_concurrency();
  Progress progress;
  std::mutex mutex;
  std::size_t done = 0;
  in_parallel(rows.size(), threads, [&](std::size_t i) {
    FitRow& row = rows[i];
    bench::ReplayOptions options;
    options.settings = arguments.settings;
    options.passes = arguments.passes;
    options.progress = [&](double /*of this capacity*/) {
      const std::scoped_lock lock(mutex);
      progress.show(fmt::format("{}  {}", row.run->name(), row.allocator),
                    static_cast<double>(done) / static_cast<double>(rows.size()));
    };
    options.progress(0);
    row.fit = bench::least_capacity(row.run->trace, row.allocator, options);
    const std::scoped_lock lock(mutex);
    ++done;
  });
  return rows;
}

int run(const FitArguments& arguments) {
  const std::vector<std::string> allocators = allocators_of(arguments.allocators);
  check_settings(arguments.settings);
  LoadedTraces loaded = load_all(arguments.traces);
  const std::vector<RecordedRun> runs = recorded_runs(std::move(loaded.traces));
  const std::vector<FitRow> rows = fit_all(runs, allocators, arguments);
  if (arguments.as_json) {
    json list = json::array();
    for (const FitRow& row : rows) list.push_back(to_json(row, arguments));
    fmt::print("{}\n", json_text(list, 1));
  } else if (!rows.empty()) {
    print_table(rows, arguments);
  }
  return status_of(loaded.all_good, std::all_of(rows.begin(), rows.end(), [](const FitRow& row) {
                     return row.least_bytes().has_value();
                   }));
}

}  // namespace

void add_fit(CLI::App& app, int& status) {
  auto arguments = std::make_shared<FitArguments>();
  CLI::App* command = app.add_subcommand(
      "fit",
      "Find the least GPU memory with which a recorded run completes, several times in a row, to\n"
      "2 MiB. Larger sizes are tried too, for what completes in one may fail with more. What the\n"
      "CUDA context and libraries take (some 500 MiB) comes on top.\n"
      "\n"
      "Examples:\n"
      "  gapless fit run.pickle\n"
      "  gapless fit run.pickle --allocator gapless --json\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line or file (the others are done); 3 a run ended "
      "out\n"
      "of memory when it was recorded, so that nobody knows, or is too large for any GPU.");
  command->add_option("trace", arguments->traces, "PyTorch snapshots (.pickle) or gapless traces")
      ->required();
  command
      ->add_option("-a,--allocator", arguments->allocators,
                   "Comma-separated: gapless, native, expandable, torch-native, torch-expandable")
      ->capture_default_str();
  command->add_option("-n,--passes", arguments->passes, "The run must complete so often in a row")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--conf", arguments->settings,
                      "Options of gapless, key:value,... (see gapless options)");
  command->add_flag("--json", arguments->as_json, "One JSON object per trace and allocator");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
