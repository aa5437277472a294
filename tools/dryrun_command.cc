// gapless dryrun: does a program fit on GPUs that are not there?
//
//   gapless dryrun --gpu 16GiB -- python train.py
//     sets LD_PRELOAD (simgpu/front), SIMGPU_*, PyTorch's allocator settings; runs the program
//     <- reports of its processes (process_reports.h), judged (simgpu/verdict.h)
//     -> a row for each process and GPU (dryrun_rows.h), of several allocators compared
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "tools/commands.h"
#include "tools/dryrun_rows.h"
#include "tools/estimates_from.h"
#include "tools/fits_report.h"
#include "tools/inputs.h"
#include "tools/json_values.h"
#include "tools/lacking_kernels.h"
#include "tools/launch.h"
#include "tools/left_behind.h"
#include "tools/own_folder.h"
#include "tools/process_reports.h"
#include "tools/program_options.h"
#include "tools/same_program.h"
#include "tools/say.h"
#include "tools/simulated_run.h"
#include "tools/table.h"
#include "tools/temporary_folder.h"
#include "tools/text_width.h"
#include "tools/torch_settings.h"
#include "tools/words_of_program.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct DryrunArguments {
  SimulatedGpus gpus;
  std::vector<std::string> allocators = {"native"};
  std::string record;
  ProgramOptions program;
};

void check(DryrunArguments& arguments) {
  spell_out(arguments.allocators);
  check(arguments.gpus, arguments.allocators);
  leave_out_torch_settings("dryrun", arguments.allocators);
  check_json_file(arguments.program);
  check_writable(arguments.record, "--record");
}

// With one allocator; without what `fits` traces.
struct Outcome {
  FitsRun run;
  std::string why_no_gpu;
};

Outcome run_with(const std::string& allocator, const DryrunArguments& arguments) {
  const TemporaryFolder reports;
  const TemporaryFolder place;
  Outcome outcome;
  FitsRun& run = outcome.run;
  run.allocator = allocator;
  Variables variables = variables_of(arguments.gpus, allocator, reports.path());
  if (!arguments.record.empty()) {
    variables.emplace_back("SIMGPU_RECORD", fs::absolute(arguments.record).string());
  }
  LeftRunning left;
  const Ended ended =
      run_program(with_own_folder(arguments.program.command, place.path()), variables);
  Watching watching;
  watching.waits = [](const std::string& names) {
    say(stderr, "{}\n", waiting_for("gapless dryrun", names));
  };
  run.end = wait_for_left(left, watching, ended);
  run.rows = rows_of(read_reports(reports.path(), ended), allocator, ended.status());
  run.absent = absent_ranks(reports.path());
  for (json& row : run.rows) {
    row["ranks_not_run"] = run.absent;
    judge_end(row, run.end);
    judge_estimates(row, arguments.gpus.estimates);
    judge_kernels(row);
    if (arguments.gpus.worst_case) note_worst_case(row);
  }
  if (run.rows.empty()) {
    for (const std::string& sentence : left.told({})) {
      say(stderr, "gapless dryrun: {}\n", sentence);
    }
  } else {
    tell_of_left(run.rows, left);
  }
  outcome.why_no_gpu = why_no_gpu(reports.path());
  return outcome;
}

// The files that processes wrote their memory's history to, each once, though it may be of several
// GPUs.
std::set<std::string> recorded_in(const json& rows) {
  std::set<std::string> files;
  for (const json& row : rows) {
    if (const json file = member(row, "record"); file.is_string()) files.insert(file);
  }
  return files;
}

int run(DryrunArguments& arguments) {
  check(arguments);
  keep_piped_input(arguments.program.command);
  tell_of_words("gapless dryrun", arguments.program.command, arguments.gpus);
  fmt::print(stderr, "{}", headline("dryrun", arguments.gpus));
  std::vector<FitsRun> runs;
  StepsBefore steps_before;
  std::string instead;
  std::string no_gpu_because;
  for (const std::string& allocator : arguments.allocators) {
    if (arguments.allocators.size() > 1) {
      say(stderr, "gapless dryrun: with {}\n", allocator);
    }
    Outcome outcome = run_with(allocator, arguments);
    steps_before.judge(outcome.run);
    if (allocator == "gapless") instead = used_in_place(outcome.run.rows);
    if (runs.empty()) no_gpu_because = outcome.why_no_gpu;
    runs.push_back(std::move(outcome.run));
    if (runs.back().end.by == WatchedEnd::By::user) break;
  }
  judge_by_one_another(runs, arguments.gpus.estimates);
  json rows = json::array();
  for (const FitsRun& run : runs) rows.insert(rows.end(), run.rows.begin(), run.rows.end());
  const std::string& program = arguments.program.command.front();
  const FitsRun& first = runs.front();
  const int status = first.end.ended.status();
  if (rows.empty()) {
    fmt::print(stderr, "{}",
               message("gapless dryrun: " + no_gpu_used(program, first.end.ended, no_gpu_because)));
  } else {
    fmt::print(stderr, "\n{}", text_of_rows(rows, colour_wanted()));
  }
  for (const std::string& note :
       {runs.size() == 1 ? drawn_note(first) : "", note_of_ranks(arguments.gpus, first.absent)}) {
    if (!note.empty()) fmt::print(stderr, "{}", message("gapless dryrun: " + note));
  }
  for (const std::string& file : recorded_in(rows)) {
    say(stderr, "gapless dryrun: recorded in {} (gapless inspect, gapless replay)\n", file);
  }
  write_json(arguments.program, json_text(rows, 1));
  if (instead == "cudaMalloc") {
    fmt::print(
        stderr,
        "gapless dryrun: a program without PyTorch: its own cudaMalloc served it, not gapless "
        "(for such programs preload libgapless_cuda.so)\n");
    return kExitBadInput;
  }
  if (!instead.empty()) {
    say(stderr, "gapless dryrun: {} was used in place of gapless, as said above\n", instead);
    return kExitBadInput;
  }
  if (std::any_of(first.rows.begin(), first.rows.end(),
                  [](const json& row) { return row["fits"] == false; })) {
    return kExitNoFit;
  }
  if (status != 0 && !rows.empty()) {
    say(stderr, "gapless dryrun: {} ended with status {}\n", program, status);
  }
  return status;
}

}  // namespace

void add_dryrun(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DryrunArguments>();
  CLI::App* command = app.add_subcommand(
      "dryrun",
      "Run a program on GPUs that are not there: does it fit, and how much does it take?\n"
      "The CUDA build of PyTorch runs unchanged; its kernels do nothing, its memory is real to the "
      "byte.\n"
      "\n"
      "Examples:\n"
      "  gapless dryrun --gpu 16GiB -- python train.py\n"
      "  gapless dryrun --gpu 16GiB --allocator gapless,native,expandable -- python train.py\n"
      "  gapless dryrun --gpu A100,A100 --allocator expandable -- torchrun --nproc-per-node 2 "
      "train.py\n"
      "  gapless dryrun --gpu 8xA100 --ranks 0 -- torchrun --nproc-per-node 8 train.py\n"
      "  gapless dryrun --gpu 'RTX 4090' --record run.pickle -- python train.py; gapless replay "
      "run.*.pickle\n"
      "\n"
      "Exit status: the program's own (with the first allocator); 3 where one of its processes "
      "ended "
      "for lack of memory; 2 for bad input.");
  command
      ->add_option(
          "-a,--allocator", arguments->allocators,
          "gapless, or one of PyTorch's: native, expandable (segments), async (a model of "
          "cudaMallocAsync); or several, separated by commas; all: gapless, native, expandable. "
          "The program is run with each")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(allocator_words()));
  command->add_option(
      "--record", arguments->record,
      "Write PyTorch's memory history: FILE run.pickle becomes run.PID.pickle, a snapshot "
      "with the source line of every allocation, for each process");
  add_gpu_options(*command, arguments->gpus);
  command->footer(kOwnFolderHelp);
  add_program(
      *command, arguments->program,
      "Write one object per process and GPU to this file; without one, to standard "
      "output after all that the program printed",
      [arguments] { return run(*arguments); }, status);
}

}  // namespace gapless::tools
