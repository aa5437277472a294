// streams_bench: memory against time lost, for programs with several streams.
//
//   streams_bench                                    every program, gapless, native and expandable
//   streams_bench --program 'offload-1-*' --settings stream_budget:10
//   streams_bench --headroom 2                       at 1.02 x peak live: who completes?
//   streams_bench --json streams.json                for docs/streams.svg
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fnmatch.h>

#include "allocator/base/bytes.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "bench/streams/run.h"

namespace gapless::bench {
namespace {

struct Arguments {
  std::vector<std::string> programs = {"*"};
  std::vector<std::string> allocators = {"gapless", "native", "expandable"};
  std::string settings;
  std::string costs = "a100";
  std::string json;
  int iterations = 12;
  std::uint32_t layers = 24;
  double headroom = -1;
};

bool is_wanted(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

nlohmann::json to_json(const StreamRunResult& result, const std::string& settings) {
  return {{"program", result.program},
          {"allocator", result.allocator},
          {"settings", settings},
          {"peak_live_bytes", result.peak_live_bytes},
          {"peak_reserved_bytes", result.peak_reserved_bytes},
          {"overhead_percent", result.overhead_percent()},
          {"fits", result.fits},
          {"lost_percent", result.fits ? nlohmann::json(result.lost_percent()) : nullptr},
          {"driver_calls", result.calls.total()},
          {"host_syncs", result.calls.host_syncs()},
          {"stream_waits", result.calls.of(DriverCall::stream_wait_event)},
          {"maps", result.calls.of(DriverCall::mem_map)},
          {"violations", result.violations.size()}};
}

int run(const Arguments& arguments) {
  nlohmann::json document = nlohmann::json::array();
  fmt::print("{:<18} {:<10} {:>9} {:>7} {:>6}  {:>6} {:>6} {:>5} {:>6}\n", "program", "allocator",
             "live MiB", "over %", "lost %", "calls", "syncs", "waits", "maps");
  bool clean = true;
  for (const std::string& name : stream_program_names()) {
    if (!is_wanted(name, arguments.programs)) continue;
    const StreamProgram program =
        stream_program(name, {.iterations = arguments.iterations, .layers = arguments.layers});
    StreamRunOptions options;
    options.costs = simgpu::load_cost_profile(arguments.costs);
    options.settings = arguments.settings;
    if (arguments.headroom >= 0) {
      const auto peak = static_cast<double>(program.peak_live_bytes());
      options.capacity_bytes =
          align_up(static_cast<std::uint64_t>(peak * (1 + arguments.headroom / 100)), 2 * MiB);
    }
    for (const std::string& allocator : arguments.allocators) {
      const StreamRunResult result = run_streams(program, allocator, options);
      clean = clean && result.violations.empty();
      fmt::print("{:<18} {:<10} {:>9} {:>7.1f} {:>6}  {:>6} {:>6} {:>5} {:>6}{}\n", name, allocator,
                 result.peak_live_bytes / MiB, result.overhead_percent(),
                 result.fits ? fmt::format("{:.1f}", result.lost_percent()) : "OOM",
                 result.calls.total(), result.calls.host_syncs(),
                 result.calls.of(DriverCall::stream_wait_event),
                 result.calls.of(DriverCall::mem_map),
                 result.violations.empty() ? "" : "  " + result.violations.front());
      std::fflush(stdout);
      document.push_back(to_json(result, arguments.settings));
    }
  }
  if (!arguments.json.empty()) write_file(arguments.json, json_text(document, 1) + "\n");
  return clean ? 0 : 1;
}

}  // namespace
}  // namespace gapless::bench

int main(int count, char** words) {
  gapless::bench::Arguments arguments;
  CLI::App app(
      "Programs with several streams on the virtual clock: memory reserved over memory live, and "
      "run\n"
      "time over that with unlimited memory.\n\n"
      "  streams_bench --program 'offload-1-*' --settings stream_budget:10\n"
      "  streams_bench --headroom 2 --allocator gapless\n");
  app.add_option("--program", arguments.programs, "names or patterns (offload-1-*)");
  app.add_option("--allocator", arguments.allocators, "gapless, native, expandable");
  app.add_option("--settings", arguments.settings, "options of gapless, key:value,...");
  app.add_option("--costs", arguments.costs, "cost profile: a100, desktop, free or a file");
  app.add_option("--iterations", arguments.iterations, "iterations, of which 4 are warm-up");
  app.add_option("--layers", arguments.layers, "layers of the models trained (default: 24)")
      ->check(CLI::Range(2, 1000));
  app.add_option("--headroom", arguments.headroom, "capacity, in percent above peak live");
  app.add_option("--json", arguments.json, "write the results to this file too");
  CLI11_PARSE(app, count, words);
  try {
    return gapless::bench::run(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "streams_bench: {}\n", error.what());
    return 2;
  }
}
