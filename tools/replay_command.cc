// gapless replay: what each allocator would reserve for a recorded run.
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "bench/replay/in_torch.h"
#include "bench/replay/replay.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/progress.h"
#include "tools/recorded_run.h"
#include "tools/replay_picture.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct ReplayArguments {
  std::vector<std::string> traces;
  std::string allocators = "gapless,native,expandable";
  int passes = bench::kPasses;
  std::string capacity;
  std::string profile = "a100";
  std::string settings;
  bool as_json = false;
  std::string plot;
};

json calls_by_kind(const DriverCallCounts& counts) {
  json kinds = json::object();
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    const auto kind = static_cast<DriverCall>(i);
    if (counts.calls[i] != 0) kinds[std::string(name_of(kind))] = counts.calls[i];
  }
  return kinds;
}

struct ReplayRow {
  const RecordedRun& run;
  bench::ReplayResult result;

  // Whether it fits is not known where the recording does not tell what comes next.
  [[nodiscard]] std::optional<bool> fits() const {
    if (result.fits && run.end) return {};
    return result.fits;
  }
};

json to_json(const ReplayRow& row, const ReplayArguments& arguments) {
  const bench::ReplayResult& result = row.result;
  json object = {{"trace", result.trace},
                 {"device", result.device},
                 {"allocator", result.allocator},
                 {"events", result.events},
                 {"operations", result.operations},
                 {"passes", arguments.passes},
                 {"profile", arguments.profile},
                 {"peak_allocated_bytes", result.peak_allocated_bytes},
                 {"peak_reserved_bytes", result.peak_reserved_bytes},
                 {"overhead_percent", nullptr},
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
                 {"fits", nullptr}};
  if (const auto overhead = result.overhead_percent()) object["overhead_percent"] = *overhead;
  if (const auto fits = row.fits()) object["fits"] = *fits;
  if (bench::is_in_torch(result.allocator)) {
    object["driver_ns"] = object["last_pass_driver_ns"] = nullptr;  // nobody timed them
  }
  if (!result.fits) {
    object["failed_pass"] = result.failed_pass;
    object["failed_event"] = result.failed_event;
    object["failed_bytes"] = result.failed_bytes;
    for (const char* field : {"ns_per_op", "ns_per_op_p50", "ns_per_op_p99"}) {
      object[field] = nullptr;  // the last pass was never timed
    }
  }
  row.run.tell(object);
  return object;
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

void add_to(Table& table, const ReplayRow& row, bool first_of_run) {
  const bench::ReplayResult& result = row.result;
  const auto overhead = result.overhead_percent();
  const auto fits = row.fits();
  // What was counted up to a failure tells nothing of a whole pass.
  const auto of_passes = [&](const std::string& text) { return result.fits ? text : "-"; };
  const auto ns = [&](double value) { return of_passes(fmt::format("{:.0f}", value)); };
  table.add({{first_of_run ? row.run.name() : ""},
             {result.allocator},
             {format_bytes(result.peak_allocated_bytes)},
             {format_bytes(result.peak_reserved_bytes)},
             {overhead ? fmt::format("{:.2f} %", *overhead) : "-", !overhead        ? Colour::none
                                                                   : *overhead <= 1 ? Colour::good
                                                                   : *overhead >= 5 ? Colour::bad
                                                                                    : Colour::none},
             {!fits   ? "not known"
              : *fits ? "yes"
                      : "no",
              fits.value_or(false) ? Colour::none : Colour::bad},
             {of_passes(with_commas(result.first_pass.total()))},
             {of_passes(with_commas(result.last_pass.total())),
              result.last_pass.total() == 0 ? Colour::good : Colour::none},
             {bench::is_in_torch(result.allocator)  // whose driver calls nobody timed
                  ? "-"
                  : of_passes(format_ns(static_cast<double>(result.first_pass.total_ns())))},
             {with_commas(result.all_passes.host_syncs()),
              result.all_passes.host_syncs() == 0 ? Colour::good : Colour::bad},
             {ns(result.times.mean_ns)},
             {ns(result.times.p50_ns)},
             {ns(result.times.p99_ns)}});
}

void print_table(const std::vector<ReplayRow>& rows, const ReplayArguments& arguments) {
  using Align = Table::Align;
  Table table({{"trace", Align::left},
               {"allocator", Align::left},
               {"allocated"},
               {"reserved"},
               {"overhead"},
               {"fits", Align::left},
               {"driver calls"},
               {"last pass"},
               {"driver time"},
               {"stalls"},
               {"ns/op"},
               {"p50"},
               {"p99"}});
  const RecordedRun* before = nullptr;
  for (const ReplayRow& row : rows) {
    if (before != nullptr && before != &row.run) table.gap();
    add_to(table, row, before != &row.run);
    before = &row.run;
  }
  fmt::print("{}\n", table.text(colour_wanted()));
  before = nullptr;
  for (const ReplayRow& row : rows) {
    if (const std::string note = row.run.note(); before != &row.run && !note.empty()) {
      fmt::print("{}\n", paragraph(note));
    }
    before = &row.run;
    const bench::ReplayResult& result = row.result;
    if (result.fits) continue;
    fmt::print(
        "{}\n",
        paragraph(fmt::format(
            "{} with {} does not fit{}: {} asked at event {} in pass {}{}.", row.run.name(),
            result.allocator, arguments.capacity.empty() ? "" : " " + arguments.capacity,
            format_bytes(result.failed_bytes), with_commas(result.failed_event), result.failed_pass,
            result.failed_bytes > bench::kLargestGpuBytes ? ", more than any GPU has" : "")));
  }
  fmt::print(
      "{}",
      paragraph(fmt::format(
          "Fits: {} in a row complete. Allocated, reserved: at their peaks. Driver calls: first "
          "pass, then the last; driver time: of the first pass, by the {} profile. Stalls: calls "
          "in "
          "which the host waits for the GPU, all passes. ns/op: host time per alloc or free in the "
          "last pass.",
          arguments.passes == 1 ? "1 pass" : fmt::format("{} passes", arguments.passes),
          arguments.profile)));
}

void print_calls(const bench::ReplayResult& result) {
  fmt::print(
      "\n{}{}",
      paragraph(fmt::format("{}, first pass: {}", result.allocator, kinds_text(result.first_pass))),
      paragraph(fmt::format("{}, last pass: {}", result.allocator, kinds_text(result.last_pass))));
}

std::uint64_t capacity_of(const std::string& text) {
  const std::uint64_t bytes = bytes_of(text, "--capacity");
  if (!text.empty() && bytes < 2 * MiB) {
    throw InputError("--capacity: " + format_bytes(bytes) + " is less than a page of 2 MiB");
  }
  return bytes;
}

// Before hours of replay.
void check_plot(const ReplayArguments& arguments) {
  if (arguments.plot.empty()) return;
  if (!arguments.plot.ends_with(".svg")) {
    throw InputError("--plot: " + arguments.plot + ": its name is to end with .svg");
  }
  for (const std::string& trace : arguments.traces) {
    std::error_code neither;  // is there
    if (std::filesystem::equivalent(arguments.plot, trace, neither)) {
      throw InputError("--plot: " + arguments.plot +
                       " is one of the traces, and would be overwritten");
    }
  }
  check_writable(arguments.plot, "--plot");
}

void write_plot(const ReplayArguments& arguments, std::vector<ReplayRow> rows,
                std::uint64_t capacity_bytes) {
  std::vector<ReplayPanel> panels;
  const RecordedRun* before = nullptr;
  for (ReplayRow& row : rows) {
    if (before != &row.run) {
      panels.push_back(
          {row.run.end ? row.run.name() + " (ended out of memory when recorded)" : row.run.name(),
           {},
           capacity_bytes,
           arguments.passes});
    }
    before = &row.run;
    panels.back().results.push_back(std::move(row.result));
  }
  write_file(arguments.plot, svg_of_replays(panels));
}

int run(const ReplayArguments& arguments) {
  const std::vector<std::string> allocators = allocators_of(arguments.allocators);
  check_settings(arguments.settings);
  check_plot(arguments);
  bench::ReplayOptions options;
  options.passes = arguments.passes;
  options.capacity_bytes = capacity_of(arguments.capacity);
  options.settings = arguments.settings;
  options.keep_course = !arguments.plot.empty();
  try {
    options.costs = simgpu::load_cost_profile(arguments.profile);
  } catch (const std::runtime_error& error) {
    throw InputError(std::string("--profile: ") + error.what());
  }
  LoadedTraces loaded = load_all(arguments.traces);
  const std::vector<RecordedRun> runs = recorded_runs(std::move(loaded.traces));
  std::vector<ReplayRow> rows;
  bool all_fit = true;
  {
    Progress progress;
    const double jobs = static_cast<double>(runs.size() * allocators.size());
    for (const RecordedRun& run : runs) {
      for (const std::string& allocator : allocators) {
        options.progress = [&](double fraction) {
          progress.show(fmt::format("{}  {}", run.name(), allocator),
                        (static_cast<double>(rows.size()) + fraction) / jobs);
        };
        options.progress(0);
        rows.push_back({run, bench::replay(run.trace, allocator, options)});
        all_fit = all_fit && rows.back().fits().value_or(false);
      }
    }
  }
  if (arguments.as_json) {
    json list = json::array();
    for (const ReplayRow& row : rows) list.push_back(to_json(row, arguments));
    fmt::print("{}\n", json_text(list, 1));
  } else if (!rows.empty()) {
    print_table(rows, arguments);
    if (rows.size() <= 3) {
      for (const ReplayRow& row : rows) {
        if (row.result.fits) print_calls(row.result);
      }
    }
  }
  if (!arguments.plot.empty() && !rows.empty()) {
    write_plot(arguments, std::move(rows), options.capacity_bytes);
  }
  return status_of(loaded.all_good, all_fit);
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
      "  gapless replay run.gtrace --plot run.svg\n"
      "  gapless replay run.gtrace --allocator gapless --conf stream_budget:1,page_size:4MiB\n"
      "\n"
      "Exit status: 0 all fit; 2 a wrong command line or file (the others are replayed); 3 one "
      "did\n"
      "not fit, or ended out of memory when it was recorded, so that nobody knows.");
  command->add_option("trace", arguments->traces, "PyTorch snapshots (.pickle) or gapless traces")
      ->required();
  command
      ->add_option(
          "-a,--allocator", arguments->allocators,
          "Comma-separated: gapless, native (PyTorch's default), expandable\n"
          "(PyTorch's expandable_segments), which are models; torch-native, torch-expandable:\n"
          "those two themselves, where torch_host was built (docs/simulated-gpu.md)")
      ->capture_default_str();
  command
      ->add_option("-n,--passes", arguments->passes,
                   "Play the trace so often in a row; it fits where all of them complete")
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
  command->add_option(
      "--plot", arguments->plot,
      "Draw what each allocator reserved over the first pass (more where one failed "
      "later),\nand what was allocated: FILE.svg, one picture below the other for "
      "several traces");
  command->add_flag("--json", arguments->as_json, "One JSON object per trace and allocator");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
