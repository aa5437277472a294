#include "bench/corpus/figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "bench/replay/fit.h"
#include "bench/replay/replay.h"

namespace gapless::bench {
namespace {

constexpr std::size_t kFifth = 4;
constexpr std::size_t kTenth = 9;

constexpr std::array<FigureFacts, kFigures> kFacts = {{
    {"over_percent", "reserved over allocated, %", "over", 2},
    {"calls_pass_5", "driver calls, pass 5", "calls", 0},
    {"stalls_pass_5", "stalls, pass 5", "calls", 0},
    {"calls_pass_10", "driver calls, pass 10", "calls", 0},
    {"stalls_pass_10", "stalls, pass 10", "calls", 0},
    {"first_pass_a100_ms", "driver time, pass 1, a100, ms", "time", 1},
    {"first_pass_desktop_ms", "driver time, pass 1, desktop, ms", "time", 1},
    {"tight_fails_percent", "do not complete at 1.02 x, %", "tight", 1},
    {"tight_stalls", "stalls at 1.02 x, 4 passes", "tight", 0},
    {"least_percent", "least capacity over allocated, %", "least", 2},
}};

double over_percent(std::uint64_t bytes, std::uint64_t allocated) {
  if (allocated == 0) return 0;
  return (static_cast<double>(bytes) / static_cast<double>(allocated) - 1) * 100;
}

double first_pass_ms(const ReplayResult& result) {
  return static_cast<double>(result.first_pass.total_ns()) / 1e6;
}

void measure_passes(const Trace& trace, const std::string& allocator, ReplayOptions options,
                    const FigureChoice& choice, FigureValues& values) {
  options.passes = static_cast<int>(choice.calls ? kTenth + 1 : choice.over ? kFifth + 1 : 1);
  options.keep_passes = true;
  options.costs = simgpu::load_cost_profile("a100");
  const ReplayResult result = replay(trace, allocator, options);
  if (choice.time) values[Figure::a100_ms] = first_pass_ms(result);
  if (choice.over && result.passes.size() > kFifth) {
    values[Figure::over] =
        over_percent(result.passes[kFifth].peak_reserved_bytes, result.peak_allocated_bytes);
  }
  if (choice.calls && result.passes.size() > kTenth) {
    const auto calls = [&](std::size_t pass) {
      return static_cast<double>(result.passes[pass].calls.total());
    };
    const auto stalls = [&](std::size_t pass) {
      return static_cast<double>(result.passes[pass].calls.host_syncs());
    };
    values[Figure::calls_5] = calls(kFifth);
    values[Figure::stalls_5] = stalls(kFifth);
    values[Figure::calls_10] = calls(kTenth);
    values[Figure::stalls_10] = stalls(kTenth);
  }
}

void measure_tight(const Trace& trace, const std::string& allocator, ReplayOptions options,
                   FigureValues& values) {
  const double live = static_cast<double>(peak_live_bytes(trace));
  options.capacity_bytes = align_up(static_cast<std::uint64_t>(live * 1.02), 2 * MiB);
  const ReplayResult result = replay(trace, allocator, options);
  values[Figure::tight_fails] = result.fits ? 0 : 100;
  if (result.fits) {
    values[Figure::tight_stalls] = static_cast<double>(result.all_passes.host_syncs());
  }
}

}  // namespace

const FigureFacts& facts_of(Figure figure) { return kFacts[static_cast<std::size_t>(figure)]; }

bool FigureChoice::has(Figure figure) const {
  const std::string_view set = facts_of(figure).set;
  if (set == "over") return over;
  if (set == "calls") return calls;
  if (set == "time") return time;
  if (set == "tight") return tight;
  return least;
}

FigureChoice read_figures(const std::string& list) {
  FigureChoice choice{false, false, false, false, false};
  std::stringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const bool quick = item == "quick" || item == "all";
    const FigureChoice before = choice;
    choice.over = before.over || quick || item == "over";
    choice.calls = before.calls || quick || item == "calls";
    choice.time = before.time || quick || item == "time";
    choice.tight = before.tight || quick || item == "tight";
    choice.least = before.least || item == "all" || item == "least";
    const auto known = {"quick", "all", "over", "calls", "time", "tight", "least"};
    if (std::find(known.begin(), known.end(), item) == known.end()) {
      throw InputError("--figures: there is no \"" + item +
                       "\"; there are over, calls, time, tight, least, quick and all");
    }
  }
  if (list.empty()) throw InputError("--figures: the list is empty");
  return choice;
}

FigureValues measure(const Trace& trace, const std::string& allocator, const std::string& settings,
                     const FigureChoice& choice) {
  FigureValues values;
  ReplayOptions options;
  options.settings = settings;
  options.time_operations = false;
  if (choice.over || choice.calls || choice.time) {
    measure_passes(trace, allocator, options, choice, values);
  }
  if (choice.time) {
    options.passes = 1;
    options.costs = simgpu::load_cost_profile("desktop");
    values[Figure::desktop_ms] = first_pass_ms(replay(trace, allocator, options));
    options.passes = kPasses;
    options.costs = {};
  }
  if (choice.tight) measure_tight(trace, allocator, options, values);
  if (choice.least) {
    if (const auto fit = least_capacity(trace, allocator, options)) {
      values[Figure::least] = over_percent(fit->least_bytes, peak_live_bytes(trace));
    }
  }
  return values;
}

}  // namespace gapless::bench
