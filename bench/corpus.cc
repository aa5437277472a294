// corpus: gapless and PyTorch's allocators over hundreds of generated programs, and recordings.
//
//   corpus                                       200 programs, the quick figures
//   corpus --options handle_parts:0              the same with other options: differences are shown
//   corpus --figures all --programs 60           with the least memory each of them needs
//   corpus --family serving --rows --write /tmp/programs
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/base/parallel.h"
#include "allocator/base/read_budget.h"
#include "allocator/base/terminal_text.h"
#include "allocator/device/options.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "bench/corpus/figures.h"
#include "bench/corpus/program.h"
#include "bench/corpus/report.h"
#include "bench/corpus/summary.h"
#include "bench/peers/peer.h"

namespace gapless::bench {
namespace {

using nlohmann::json;

constexpr const char* kKeepHere = "build/corpus.json";

struct Arguments {
  std::vector<std::string> recordings;
  std::uint64_t programs = 200;
  std::uint64_t seed = 1;
  std::string family;
  std::string options;
  std::string figures = "quick";
  std::vector<std::string> allocators = {"gapless", "native", "expandable"};
  std::string keep = kKeepHere;
  std::string write;
  unsigned jobs = 0;
  bool no_recordings = false;
  bool rows = false;
  bool as_json = false;
};

// A line on a terminal: how many are done.
class Counter {
 public:
  explicit Counter(std::size_t all) : all_(all), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~Counter() {
    if (terminal_) std::fputs("\r\x1b[K", stderr);
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;
  void add() {
    if (!terminal_) return;
    const std::scoped_lock lock(mutex_);
    ++done_;
    const auto now = std::chrono::steady_clock::now();
    if (now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    fmt::print(stderr, "\r\x1b[K{} of {} programs", done_, all_);
    std::fflush(stderr);
  }

 private:
  std::size_t all_;
  bool terminal_;
  std::mutex mutex_;
  std::size_t done_ = 0;
  std::chrono::steady_clock::time_point drawn_{};
};

std::vector<std::string> recordings_of(const Arguments& arguments) {
  if (arguments.no_recordings || !arguments.recordings.empty()) return arguments.recordings;
  std::vector<std::string> found;
  std::error_code none;  // there is no such folder here
  for (const auto& entry : std::filesystem::directory_iterator("examples/traces", none)) {
    if (entry.path().extension() == ".gtrace") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void check(const Arguments& arguments) {
  (void)read_options(arguments.options, "--options");
  for (const std::string& name : passed_over(arguments.options)) {
    fmt::print(stderr, "corpus: --options: {} is no option any more; it changes nothing\n", name);
  }
  const std::vector<std::string> families = family_names();
  if (!arguments.family.empty() &&
      std::find(families.begin(), families.end(), arguments.family) == families.end()) {
    throw InputError(fmt::format("--family: there is no family \"{}\"; there are {}",
                                 arguments.family, fmt::join(families, ", ")));
  }
  const std::vector<std::string> peers = peer_names();
  for (const std::string& name : arguments.allocators) {
    if (std::find(peers.begin(), peers.end(), name) == peers.end()) {
      throw InputError(fmt::format("--allocators: there is no \"{}\"; there are {}", name,
                                   fmt::join(peers, ", ")));
    }
  }
  if (std::error_code error; !arguments.write.empty()) {
    std::filesystem::create_directories(arguments.write, error);
    if (error) throw InputError(arguments.write, "--write", "cannot be made: " + error.message());
  }
}

// The run before, where it was of the same programs; else null, and why is told.
json kept_run(const Arguments& arguments, const json& of) {
  if (arguments.keep.empty() || !std::filesystem::exists(arguments.keep)) return {};
  const std::string bytes = read_file(arguments.keep);
  ReadBudget budget(arguments.keep, bytes.size());
  json kept = parse_json(bytes, budget, "");
  if (!kept.is_object() || !kept.contains("of") || !kept.contains("tables")) {
    throw InputError(arguments.keep, "--keep", "is no table of a corpus");
  }
  if (kept["of"].value("programs", json()) == of["programs"] &&
      kept["of"].value("seed", json()) == of["seed"] &&
      kept["of"].value("family", json()) == of["family"] &&
      kept["of"].value("recordings", json()) == of["recordings"]) {
    return kept;
  }
  fmt::print(stderr, "corpus: {} is of other programs: no differences are shown\n",
             terminal_text(arguments.keep));
  return {};
}

struct Measured {
  std::vector<ProgramFigures> programs;
  bool all_read = true;
};

Measured measure_all(const Arguments& arguments, const std::vector<std::string>& recordings,
                     const FigureChoice& choice) {
  Measured measured;
  const auto figures_of = [&](const Trace& trace, Group group) {
    ProgramFigures figures{
        trace.name, group, trace.events.size(), trace.streams.size(), peak_live_bytes(trace), {}};
    for (const std::string& allocator : arguments.allocators) {
      figures.by_allocator[allocator] = measure(trace, allocator, arguments.options, choice);
    }
    return figures;
  };
  std::vector<std::vector<ProgramFigures>> pieces(arguments.programs + recordings.size());
  const std::size_t threads =
      arguments.jobs != 0 ? arguments.jobs : std::max(1U, std::thread::hardware_concurrency());
  Counter counter(pieces.size());
  std::mutex mutex;
  // The long ones first.
  in_parallel(pieces.size(), threads, [&](std::size_t piece) {
    if (piece < recordings.size()) {
      try {
        for (const Trace& trace : load_traces(recordings[piece])) {
          pieces[piece].push_back(figures_of(trace, Group::recordings));
        }
      } catch (const InputError& error) {
        const std::scoped_lock lock(mutex);
        fmt::print(stderr, "corpus: {}\n", terminal_text(error.what()));
        measured.all_read = false;
      }
    } else {
      const ProgramId id{arguments.seed, piece - recordings.size()};
      const bool unseen = is_unseen(id);
      const Trace trace = corpus_program(id, arguments.family);
      if (!arguments.write.empty() && !unseen) {
        write_file(arguments.write + "/" + trace.name + ".gtrace", write_compact({trace}));
      }
      pieces[piece].push_back(figures_of(trace, unseen ? Group::unseen : Group::seen));
    }
    counter.add();
  });
  for (auto& piece : pieces) {
    for (ProgramFigures& one : piece) measured.programs.push_back(std::move(one));
  }
  return measured;
}

int run(const Arguments& arguments) {
  check(arguments);
  const FigureChoice choice = read_figures(arguments.figures);
  const std::vector<std::string> recordings = recordings_of(arguments);
  const json of = {{"programs", arguments.programs}, {"seed", arguments.seed},
                   {"family", arguments.family},     {"options", arguments.options},
                   {"figures", arguments.figures},   {"recordings", recordings}};
  std::string keep = arguments.keep;
  if (!keep.empty()) {
    const std::string cause = cannot_write(keep);
    if (!cause.empty() && keep != kKeepHere) {
      throw InputError(keep, "--keep", "cannot be written: " + cause);
    }
    if (!cause.empty()) {
      fmt::print(stderr, "corpus: this table is not kept: {}: {}\n", keep, cause);
      keep.clear();
    }
  }
  const json kept = kept_run(arguments, of);
  const Measured measured = measure_all(arguments, recordings, choice);
  const std::vector<Table> tables = tables_of(measured.programs);
  json document = to_json(tables, of);
  if (!keep.empty()) write_file(keep, json_text(document, 1) + "\n");
  if (arguments.as_json) {
    document["rows"] = rows_to_json(measured.programs);
    if (!kept.is_null()) document["before"] = kept;
    fmt::print("{}\n", json_text(document, 1));
  } else {
    if (arguments.rows) fmt::print("{}\n", rows_text(measured.programs, arguments.allocators));
    fmt::print("{}", text_of(tables, arguments.allocators, kept));
    const auto hidden = static_cast<std::size_t>(
        std::count_if(measured.programs.begin(), measured.programs.end(),
                      [](const ProgramFigures& one) { return one.group == Group::unseen; }));
    if (hidden != 0 && hidden < kFewestUnseen) {
      fmt::print("\n{} unseen: too few to tell their sums.\n", hidden);
    }
    if (!kept.is_null()) {
      const std::string before = kept["of"].value("options", std::string());
      fmt::print("\nIn parentheses: the difference to {}, with {}.\n",
                 terminal_text(arguments.keep),
                 before.empty() ? "the default options" : terminal_text(before));
    }
  }
  return measured.all_read ? 0 : 2;
}

}  // namespace
}  // namespace gapless::bench

int main(int count, char** words) {
  gapless::bench::Arguments arguments;
  CLI::App app(
      "Many programs through gapless and PyTorch's allocators, on a simulated GPU. The programs\n"
      "are generated from a seed, by family; half of them are unseen: only sums over those are\n"
      "shown. Recordings in examples/traces, or those named, are a third group.\n"
      "\n"
      "Examples:\n"
      "  corpus\n"
      "  corpus --options handle_parts:0,stream_budget:1 --allocators gapless\n"
      "  corpus --figures all --programs 60\n"
      "  corpus --family serving --rows --no-recordings\n"
      "  corpus --programs 20 --write /tmp/programs --figures over\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line or file.");
  app.add_option("recording", arguments.recordings,
                 "Recordings to take part (default: those of examples/traces)");
  app.add_option("-n,--programs", arguments.programs, "Programs to generate")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  app.add_option("--seed", arguments.seed, "Another seed, other programs")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 62));
  app.add_option(
      "--family", arguments.family,
      fmt::format("Of one family only: {}", fmt::join(gapless::bench::family_names(), ", ")));
  app.add_option("--options", arguments.options, "Options of gapless, as GAPLESS_CONF has them");
  app.add_option("--figures", arguments.figures,
                 "over, calls, time, tight, least (slow), joined by commas; quick: all but least; "
                 "all")
      ->capture_default_str();
  app.add_option("-a,--allocators", arguments.allocators, "gapless, native, expandable")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--keep", arguments.keep,
                 "File with the last table: differences to it are shown, then it is replaced; '' "
                 "for none")
      ->capture_default_str();
  app.add_option("--write", arguments.write,
                 "Folder to write the traces of seen programs to; made where it is not there");
  app.add_option("-j,--jobs", arguments.jobs, "Threads (default: as many as there are cores)")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--no-recordings", arguments.no_recordings, "Generated programs only");
  app.add_flag("--rows", arguments.rows, "A line for each program too, but for the unseen ones");
  app.add_flag("--json", arguments.as_json, "Everything that may be shown, as JSON");
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return gapless::bench::run(arguments);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "corpus: {}\n", gapless::terminal_text(error.what()));
    return 2;
  }
}
