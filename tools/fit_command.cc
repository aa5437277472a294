// gapless fit: the smallest GPU a recorded run completes on.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "bench/replay/replay.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/progress.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

struct FitArguments {
  std::vector<std::string> traces;
  std::string allocators = "gapless,native,expandable";
  int passes = 1;
  std::string settings;
  bool as_json = false;
};

struct Row {
  std::string trace;
  DeviceIndex device;
  std::string allocator;
  std::uint64_t peak_allocated_bytes;
  std::uint64_t min_capacity_bytes;

  [[nodiscard]] double over_percent() const {
    return peak_allocated_bytes == 0 ? 0
                                     : (static_cast<double>(min_capacity_bytes) /
                                            static_cast<double>(peak_allocated_bytes) -
                                        1) *
                                           100;
  }
};

int run(const FitArguments& arguments) {
  const std::vector<std::string> allocators = allocators_of(arguments.allocators);
  check_settings(arguments.settings);
  bench::ReplayOptions options;
  options.settings = arguments.settings;
  options.passes = arguments.passes;
  const std::vector<Trace> traces = load_all(arguments.traces);
  std::vector<Row> rows;
  {
    Progress progress;
    const double jobs = static_cast<double>(traces.size() * allocators.size());
    for (const Trace& trace : traces) {
      for (const std::string& allocator : allocators) {
        progress.show(fmt::format("{}  {}", trace.name, allocator),
                      static_cast<double>(rows.size()) / jobs);
        rows.push_back({trace.name, trace.device, allocator, peak_live_bytes(trace),
                        bench::least_capacity_bytes(trace, allocator, options)});
      }
    }
  }
  if (arguments.as_json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Row& row : rows) {
      list.push_back({{"trace", row.trace},
                      {"device", row.device},
                      {"allocator", row.allocator},
                      {"passes", arguments.passes},
                      {"peak_allocated_bytes", row.peak_allocated_bytes},
                      {"min_capacity_bytes", row.min_capacity_bytes},
                      {"over_percent", row.over_percent()}});
    }
    fmt::print("{}\n", list.dump(1));
    return kExitOk;
  }
  using Align = Table::Align;
  Table table({{"trace", Align::left},
               {"allocator", Align::left},
               {"peak allocated"},
               {"least capacity"},
               {"over"}});
  const Row* before = nullptr;
  for (const Row& row : rows) {
    const bool same =
        before != nullptr && before->trace == row.trace && before->device == row.device;
    if (before != nullptr && !same) table.gap();
    before = &row;
    const double over = row.over_percent();
    table.add({{same              ? ""
                : row.device == 0 ? row.trace
                                  : fmt::format("{} gpu{}", row.trace, row.device)},
               {row.allocator},
               {format_bytes(row.peak_allocated_bytes)},
               {format_bytes(row.min_capacity_bytes)},
               {fmt::format("{:.2f} %", over), over <= 1   ? Colour::good
                                               : over >= 5 ? Colour::bad
                                                           : Colour::none}});
  }
  fmt::print("{}", table.text(colour_wanted()));
  return kExitOk;
}

}  // namespace

void add_fit(CLI::App& app, int& status) {
  auto arguments = std::make_shared<FitArguments>();
  CLI::App* command = app.add_subcommand(
      "fit",
      "Find the least GPU memory with which a recorded run completes, to 2 MiB, by bisection.\n"
      "What the CUDA context and libraries take (some 500 MiB) comes on top.\n"
      "\n"
      "Examples:\n"
      "  gapless fit run.pickle\n"
      "  gapless fit run.pickle --allocator gapless --json");
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
