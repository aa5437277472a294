// gapless replay: what each allocator would reserve for a recorded run.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "bench/replay/in_torch.h"
#include "bench/replay/replay.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/progress.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct ReplayArguments {
  std::vector<std::string> traces;
  std::string allocators = "gapless,native,expandable";
  int passes = 4;
  std::string capacity;
  std::string profile = "a100";
  std::string settings;
  bool as_json = false;
};

json calls_by_kind(const DriverCallCounts& counts) {
  json kinds = json::object();
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    const auto kind = static_cast<DriverCall>(i);
    if (counts.calls[i] != 0) kinds[std::string(name_of(kind))] = counts.calls[i];
  }
  return kinds;
}

json to_json(const bench::ReplayResult& result, const ReplayArguments& arguments) {
  json row = {{"trace", result.trace},
              {"device", result.device},
              {"allocator", result.allocator},
              {"events", result.events},
              {"operations", result.operations},
              {"passes", arguments.passes},
              {"profile", arguments.profile},
              {"peak_allocated_bytes", result.peak_allocated_bytes},
              {"peak_reserved_bytes", result.peak_reserved_bytes},
              {"overhead_percent", result.overhead_percent()},
              {"driver_calls", result.first_pass.total()},
              {"driver_calls_by_kind", calls_by_kind(result.first_pass)},
              {"last_pass_driver_calls", result.last_pass.total()},
              {"last_pass_driver_calls_by_kind", calls_by_kind(result.last_pass)},
              {"calls_per_1000_allocations", result.calls_per_1000_allocations},
              {"host_syncs", result.all_passes.host_syncs()},
              {"last_pass_host_syncs", result.last_pass.host_syncs()},
              {"driver_ns", result.first_pass.total_ns()},
              {"last_pass_driver_ns", result.last_pass.total_ns()},
              {"ns_per_op", result.times.mean_ns},
              {"ns_per_op_p50", result.times.p50_ns},
              {"ns_per_op_p99", result.times.p99_ns},
              {"fits", result.fits}};
  if (bench::is_in_torch(result.allocator)) {
    row["driver_ns"] = row["last_pass_driver_ns"] = nullptr;  // nobody timed them
  }
  if (!result.fits) {
    row["failed_event"] = result.failed_event;
    row["failed_bytes"] = result.failed_bytes;
  }
  return row;
}

std::string kinds_text(const DriverCallCounts& counts) {
  std::string text;
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    if (counts.calls[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        cuda_name_of(static_cast<DriverCall>(i)), with_commas(counts.calls[i]));
  }
  if (text.empty()) text = "none";
  return text;
}

void print_table(const std::vector<bench::ReplayResult>& results,
                 const ReplayArguments& arguments) {
  using Align = Table::Align;
  Table table({{"trace", Align::left},
               {"allocator", Align::left},
               {"allocated"},
               {"reserved"},
               {"overhead"},
               {"driver calls"},
               {"last pass"},
               {"driver time"},
               {"stalls"},
               {"ns/op"},
               {"p50"},
               {"p99"},
               {"fits", Align::left}});
  const bench::ReplayResult* before = nullptr;
  for (const bench::ReplayResult& result : results) {
    const bool same =
        before != nullptr && before->trace == result.trace && before->device == result.device;
    if (before != nullptr && !same) table.gap();
    before = &result;
    const std::string name =
        result.device == 0 ? result.trace : fmt::format("{} gpu{}", result.trace, result.device);
    const double overhead = result.overhead_percent();
    table.add({{same ? "" : name},
               {result.allocator},
               {format_bytes(result.peak_allocated_bytes)},
               {format_bytes(result.peak_reserved_bytes)},
               {fmt::format("{:.2f} %", overhead), overhead <= 1   ? Colour::good
                                                   : overhead >= 5 ? Colour::bad
                                                                   : Colour::none},
               {with_commas(result.first_pass.total())},
               {with_commas(result.last_pass.total()),
                result.last_pass.total() == 0 ? Colour::good : Colour::none},
               {bench::is_in_torch(result.allocator)  // whose driver calls nobody timed
                    ? "-"
                    : format_ns(static_cast<double>(result.first_pass.total_ns()))},
               {with_commas(result.all_passes.host_syncs()),
                result.all_passes.host_syncs() == 0 ? Colour::good : Colour::bad},
               {fmt::format("{:.0f}", result.times.mean_ns)},
               {fmt::format("{:.0f}", result.times.p50_ns)},
               {fmt::format("{:.0f}", result.times.p99_ns)},
               {result.fits ? "yes"
                            : fmt::format("no: {} at event {}", format_bytes(result.failed_bytes),
                                          result.failed_event),
                result.fits ? Colour::none : Colour::bad}});
  }
  fmt::print("{}", table.text(colour_wanted()));
  fmt::print(
      "\nallocated, reserved: at their peaks. Driver calls: first of {} passes, then the last; "
      "driver time: of the\nfirst pass, by the {} profile. Stalls: calls in which the host waits "
      "for the GPU, all passes. ns/op: host\ntime per alloc or free in the last pass.\n",
      arguments.passes, arguments.profile);
}

int run(const ReplayArguments& arguments) {
  const std::vector<std::string> allocators = allocators_of(arguments.allocators);
  check_settings(arguments.settings);
  bench::ReplayOptions options;
  options.passes = arguments.passes;
  options.capacity_bytes = bytes_of(arguments.capacity, "--capacity");
  options.settings = arguments.settings;
  try {
    options.costs = simgpu::load_cost_profile(arguments.profile);
  } catch (const std::runtime_error& error) {
    throw InputError(std::string("--profile: ") + error.what());
  }
  const std::vector<Trace> traces = load_all(arguments.traces);
  std::vector<bench::ReplayResult> results;
  bool all_fit = true;
  {
    Progress progress;
    const double jobs = static_cast<double>(traces.size() * allocators.size());
    for (const Trace& trace : traces) {
      for (const std::string& warning : trace.warnings) {
        progress.clear();
        fmt::print(stderr, "gapless: {}: warning: {}\n", trace.name, warning);
      }
      for (const std::string& allocator : allocators) {
        options.progress = [&](double fraction) {
          progress.show(fmt::format("{}  {}", trace.name, allocator),
                        (static_cast<double>(results.size()) + fraction) / jobs);
        };
        options.progress(0);
        results.push_back(bench::replay(trace, allocator, options));
        all_fit = all_fit && results.back().fits;
      }
    }
  }
  if (arguments.as_json) {
    json rows = json::array();
    for (const auto& result : results) rows.push_back(to_json(result, arguments));
    fmt::print("{}\n", rows.dump(1));
  } else {
    print_table(results, arguments);
    if (results.size() <= 3) {
      fmt::print("\n");
      for (const auto& result : results) {
        fmt::print("{:<10}  first pass: {}\n{:<10}  last pass: {}\n", result.allocator,
                   kinds_text(result.first_pass), "", kinds_text(result.last_pass));
      }
    }
  }
  return all_fit ? kExitOk : kExitNoFit;
}

}  // namespace

void add_replay(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ReplayArguments>();
  CLI::App* command = app.add_subcommand(
      "replay",
      "Replay recorded traces through allocators on a simulated GPU, and print what each\n"
      "reserves.\n"
      "\n"
      "Examples:\n"
      "  gapless replay run.pickle\n"
      "  gapless replay run.pickle --capacity 16GiB --allocator gapless,native\n"
      "  gapless replay *.gtrace --passes 6 --profile desktop --json\n"
      "  gapless replay run.gtrace --allocator gapless --conf slack:0,page_size:4MiB");
  command->add_option("trace", arguments->traces, "PyTorch snapshots (.pickle) or gapless traces")
      ->required();
  command
      ->add_option(
          "-a,--allocator", arguments->allocators,
          "Comma-separated: gapless, native (PyTorch's default), expandable\n"
          "(PyTorch's expandable_segments), which are models; torch-native, torch-expandable:\n"
          "those two themselves, where torch_host was built (docs/simulated-gpu.md)")
      ->capture_default_str();
  command->add_option("-n,--passes", arguments->passes, "Play the trace so often in a row")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_option("-c,--capacity", arguments->capacity,
                      "Memory of the simulated GPU, such as 16GiB (default: ample)");
  command
      ->add_option("-p,--profile", arguments->profile,
                   "What driver calls cost: a100, desktop, free, or a JSON file")
      ->capture_default_str();
  command->add_option("--conf", arguments->settings,
                      "Options of gapless, key:value,... (see gapless options)");
  command->add_flag("--json", arguments->as_json, "One JSON object per trace and allocator");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
