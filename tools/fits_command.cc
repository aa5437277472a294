// gapless fits: does a program fit, with which allocator, and what takes the memory?
//
//   gapless fits --gpu 16GiB -- python train.py
//     for each allocator: runs it on simulated GPUs (traced_run.h)
//     -> verdicts (fits_report.h), told (fits_text.h), drawn (memory_picture.h)
#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "tools/commands.h"
#include "tools/fits_report.h"
#include "tools/fits_text.h"
#include "tools/inputs.h"
#include "tools/launch.h"
#include "tools/left_behind.h"
#include "tools/memory_picture.h"
#include "tools/older_gpu.h"
#include "tools/own_folder.h"
#include "tools/program_options.h"
#include "tools/same_program.h"
#include "tools/second_guess.h"
#include "tools/simulated_run.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/torch_settings.h"
#include "tools/traced_run.h"
#include "tools/words_of_program.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct FitsArguments {
  SimulatedGpus gpus;
  std::vector<std::string> allocators = {"all"};
  double limit_seconds = 0;  // 0: none
  bool show_output = false;
  std::string picture;
  ProgramOptions program;
};

void check(FitsArguments& arguments) {
  spell_out(arguments.allocators);
  check(arguments.gpus, arguments.allocators);
  leave_out_torch_settings("fits", arguments.allocators);
  check_json_file(arguments.program);
  check_writable(arguments.picture, "--picture");
  const std::string ending = fs::path(arguments.picture).extension();
  if (!arguments.picture.empty() && ending != ".svg" && ending != ".html") {
    throw InputError("--picture: " + arguments.picture + ": its name is to end with .svg or .html");
  }
}

TracedRun with(const std::string& allocator, const FitsArguments& arguments) {
  TracedRun traced;
  traced.name = "gapless fits: with " + allocator;
  traced.command = arguments.program.command;
  traced.gpus = arguments.gpus;
  traced.allocator = allocator;
  traced.limit_seconds = arguments.limit_seconds;
  traced.show_output = arguments.show_output;
  return traced;
}

// The runs of one command, each of which may find what those before it left.
class Runs {
 public:
  explicit Runs(const FitsArguments& arguments) : arguments_(arguments) {}

  FitsRun first_with(const std::string& allocator) { return judged(with(allocator, arguments_)); }

  // The same with other numbers in the place of those that nobody knows.
  FitsRun with_other_numbers(const FitsRun& first, const std::string& unknown,
                             const std::string& choices = "") {
    TracedRun traced = with(first.allocator, arguments_);
    traced.name += ", other numbers";
    // The n-th noise of a seed is the first one of the n-th seed after it.
    if (arguments_.gpus.unknown == "noise") traced.variables = {{"SIMGPU_SEED", "1000000000"}};
    traced.gpus.unknown = unknown;
    traced.gpus.choices = choices;
    return again(first, std::move(traced));
  }

  // The same again, where numbers were drawn.
  FitsRun another(const FitsRun& first) {
    TracedRun traced = with(first.allocator, arguments_);
    traced.name += ", another run";
    return again(first, std::move(traced));
  }

  FitsRun on_older(const FitsRun& first) {
    TracedRun traced = with(first.allocator, arguments_);
    traced.name += ", on older GPUs";
    traced.gpus = older(traced.gpus);
    return again(first, std::move(traced));
  }

 private:
  FitsRun judged(const TracedRun& traced) {
    FitsRun run = run_traced(traced);
    steps_before_.judge(run);
    return run;
  }

  FitsRun again(const FitsRun& first, TracedRun traced) {
    traced.show_output = false;
    traced.limit_seconds = second_guess_limit_seconds(first);
    return judged(traced);
  }

  const FitsArguments& arguments_;
  StepsBefore steps_before_;
};

std::vector<MemoryPanel> panels_of(const std::vector<FitsRun>& runs) {
  std::vector<MemoryPanel> panels;
  for (const FitsRun& run : runs) {
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      if (!run.memory[i]) continue;
      const json& row = run.rows[i];
      MemoryPanel panel;
      panel.course = &run.memory[i]->course;
      panel.title =
          fmt::format("{}, {}, GPU {}", run.allocator, process_name(row), row["device"].get<int>());
      panel.verdict = row["verdict"];
      panel.capacity_bytes = row["total_bytes"];
      const auto reserved = row["peak_reserved_bytes"].is_number()
                                ? row["peak_reserved_bytes"].get<std::uint64_t>()
                                : 0;
      const auto used = row["peak_used_bytes"].get<std::uint64_t>();
      panel.outside_bytes = used - std::min(used, reserved);
      panel.died = row["memory"]["at"] == "out of memory";
      panels.push_back(std::move(panel));
    }
  }
  return panels;
}

// By a run with the first allocator, and where that says too little, with each.
void judge_by_older_gpus(Runs& program, std::vector<FitsRun>& runs, const FitsRun& first) {
  const FitsRun again = program.on_older(first);
  const bool enough = answers_for_all(first, again);
  for (FitsRun& run : enough ? std::span<FitsRun>() : std::span(runs)) {
    if (&run == &first || wants_older_gpu(std::span(&run, 1)) == nullptr) continue;
    const FitsRun its_own = program.on_older(run);
    if (its_own.end.by == WatchedEnd::By::user) break;
    judge_by_older_gpu(std::span(&run, 1), run, its_own);
  }
  judge_by_older_gpu(runs, first, again);
}

// With other numbers and choices made the other way: all of them, and, as one may keep it from
// coming to the next, each alone, as far as time allows. Of these the run that takes the most, or
// the first that takes more than `first`.
FitsRun the_other_way(Runs& program, const FitsRun& first) {
  double seconds_left = 60 + first.seconds;
  std::optional<FitsRun> most;
  for (const std::string& choices : other_ways(first)) {
    FitsRun run = program.with_other_numbers(first, "noise", choices);
    const bool stopped = run.end.by == WatchedEnd::By::user;
    const double run_seconds = run.seconds;
    seconds_left -= run_seconds;
    if (!most || stopped || takes_less_than(run, *most)) most = std::move(run);
    if (stopped || seconds_left < run_seconds || takes_less_than(*most, first)) break;
  }
  return std::move(*most);
}

int run(FitsArguments arguments) {
  check(arguments);
  keep_piped_input(arguments.program.command);
  tell_of_words("gapless fits", arguments.program.command, arguments.gpus);
  Runs program(arguments);
  std::vector<FitsRun> runs;
  std::optional<FitsRun> at_the_most;  // of the first allocator, where sizes are not known
  std::string untried;
  for (const std::string& allocator : arguments.allocators) {
    if (!runs.empty() && runs.back().end.by == WatchedEnd::By::user) break;
    if (!runs.empty() && runs.front().rows.front()["pid"].is_null()) {  // nor would it here
      untried += (untried.empty() ? "" : ", ") + allocator;
      continue;
    }
    runs.push_back(program.first_with(allocator));
    if (runs.size() == 1 && may_have_died_of_zeros(runs.front(), arguments.gpus)) {
      FitsRun noisy = program.with_other_numbers(runs.front(), "noise");
      if (noisy.fits() == true && !takes_less_than(runs.front(), noisy)) {
        note_what_zeros_did(noisy, runs.front());
        runs.front() = std::move(noisy);
        arguments.gpus.unknown = "noise";
      }
    }
    if (runs.size() == 1 && fits_but_for_sizes(runs.front(), arguments.gpus)) {
      at_the_most = program.with_other_numbers(runs.front(), "most");
      if (at_the_most->fits() == true && !takes_less_than(runs.front(), *at_the_most)) {
        // As it then is with the other allocators.
        runs.front() = std::move(*at_the_most);
        at_the_most.reset();
        arguments.gpus.unknown = "most";
      }
    }
  }
  if (at_the_most) judge_by_most(runs, runs.front(), *at_the_most);
  judge_by_one_another(runs, arguments.gpus.estimates);
  if (const FitsRun* const first = wants_second_guess(runs, arguments.gpus, arguments.gpus.unknown);
      first != nullptr && runs.back().end.by != WatchedEnd::By::user) {
    judge_by_second_guess(runs, *first, the_other_way(program, *first));
  } else if (runs.size() == 1 && !arguments.gpus.estimates && !drew_from(runs[0]).empty()) {
    judge_by_another_run(runs[0], program.another(runs[0]));
  }
  if (const FitsRun* const first = wants_second_guess_of_no(runs, arguments.gpus);
      first != nullptr && runs.back().end.by != WatchedEnd::By::user) {
    // With noise the sizes of large tensors are those with zeros.
    const char* const unknown = went_by_sizes(*first) ? "most" : "noise";
    judge_no_by_second_guess(runs, program.with_other_numbers(*first, unknown, choices_of(*first)));
  }
  if (const FitsRun* const first = wants_older_gpu(runs);
      first != nullptr && runs.back().end.by != WatchedEnd::By::user) {
    judge_by_older_gpus(program, runs, *first);
  }
  json rows = json::array();
  for (const FitsRun& run : runs) rows.insert(rows.end(), run.rows.begin(), run.rows.end());
  constexpr std::size_t kColumns = 80;
  const std::size_t terminal = terminal_columns(STDOUT_FILENO);
  if (!arguments.program.json_on_output()) {
    fmt::print(stderr, "{}\n", headline("fits", arguments.gpus));
    const std::size_t columns = terminal == 0 ? kColumns : terminal;
    fmt::print("{}", text_of_fits(runs, colour_wanted(), columns));
    const std::string note = note_of_ranks(arguments.gpus, runs.front().absent);
    for (const std::string& line : lines_of(note, columns)) fmt::print("{}\n", line);
    if (!untried.empty()) fmt::print("not tried, as no GPU was used: {}\n", untried);
  }
  write_json(arguments.program, json_text(rows, 1));
  if (!arguments.picture.empty()) {
    const std::vector<MemoryPanel> panels = panels_of(runs);
    write_file(arguments.picture, arguments.picture.ends_with(".html")
                                      ? html_of(panels, text_of_fits(runs, false, 100))
                                      : svg_of(panels));
  }
  return runs.front().exit_status();
}

}  // namespace

void add_fits(CLI::App& app, int& status) {
  auto arguments = std::make_shared<FitsArguments>();
  CLI::App* command = app.add_subcommand(
      "fits",
      "Say whether a program fits on GPUs that are not there, and what takes the memory.\n"
      "It is run on simulated GPUs with each allocator: yes, and how much is left; yes, but; no, "
      "by which line; or not known, and why.\n"
      "\n"
      "Examples:\n"
      "  gapless fits --gpu 16GiB -- python train.py\n"
      "  gapless fits --gpu 'RTX 4090' --allocator native --steps 20 -- python train.py\n"
      "  gapless fits --gpu 3x19.58GiB -- torchrun --nproc-per-node 3 train.py\n"
      "  gapless fits --gpu 8xA100 --ranks 0 -- torchrun --nproc-per-node 8 train.py\n"
      "  gapless fits --gpu 16GiB --worst-case --picture memory.html -- python train.py\n"
      "  gapless fits --gpu T4 --json fits.json --time-limit 300 -- python train.py\n"
      "\n"
      "Exit status, by the first allocator (gapless, of all): 0 every process fits; 3 one does "
      "not, "
      "or nobody knows of a program that ended well or was stopped; 2 bad input; else the "
      "program's own.");
  command
      ->add_option("-a,--allocator", arguments->allocators,
                   "gapless, or one of PyTorch's: native, expandable (segments), async (a model of "
                   "cudaMallocAsync); several, separated by commas; all: gapless, native, "
                   "expandable. The program is run with each")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(allocator_words()));
  command
      ->add_option("--time-limit", arguments->limit_seconds,
                   "Interrupt the program after so many seconds; what it had come to is reported")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--show-output", arguments->show_output,
                    "Let the program print, and read what is typed, instead of keeping its output "
                    "for the case that it fails");
  command->add_option("--picture", arguments->picture,
                      "Draw memory over time by what held it: FILE.svg, or FILE.html with the "
                      "tables in it");
  add_gpu_options(*command, arguments->gpus);
  command->footer(kOwnFolderHelp);
  add_program(
      *command, arguments->program,
      "Write one object per process, GPU and allocator to this file; without one, "
      "to standard output in place of the tables",
      [arguments] { return run(*arguments); }, status);
}

}  // namespace gapless::tools
