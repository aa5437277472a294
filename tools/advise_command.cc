// gapless advise: why does a program not fit, and what would help?
//
//   gapless advise --gpu 16GiB -- python train.py
//     as `fits` (traced_run.h) -> causes, remedies, those asked for tried (advise/advise.h)
//     -> sentences and tables (advise/advice_text.h), changed configuration files
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "tools/advise/advice_text.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/launch.h"
#include "tools/own_folder.h"
#include "tools/program_options.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/torch_settings.h"
#include "tools/words_of_program.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

struct AdviseArguments {
  AdviseOptions options;
  std::string folder;  // for changed files
  ProgramOptions program;
};

void check(AdviseArguments& arguments) {
  check(arguments.options.gpus, {arguments.options.allocator, "gapless"});
  leave_out_torch_settings("advise", {arguments.options.allocator});
  check_json_file(arguments.program);
  const std::string& folder = arguments.folder;
  std::error_code error;
  if (folder.empty() || !fs::exists(folder, error)) return;
  if (!fs::is_directory(folder) || !fs::is_empty(folder)) {
    throw InputError("--write: " + folder + ": it is there already, and nothing is written over");
  }
}

void write_files(Advice& advice, const std::string& folder) {
  if (folder.empty()) return;
  for (ChangedFile& file : advice.files) {
    // Two of one name, from different folders, are kept apart.
    fs::path at = fs::path(folder) / file.remedy / fs::path(file.path).filename();
    for (int i = 2; fs::exists(at); ++i) {
      at = fs::path(folder) / file.remedy / std::to_string(i) / fs::path(file.path).filename();
    }
    std::error_code error;
    fs::create_directories(at.parent_path(), error);
    if (error)
      throw InputError(fmt::format("--write: {}: {}", at.parent_path().string(), error.message()));
    write_file(at, file.text);
    file.written = at;
  }
}

int run(AdviseArguments arguments) {
  check(arguments);
  keep_piped_input(arguments.program.command);
  tell_of_words("gapless advise", arguments.program.command, arguments.options.gpus);
  arguments.options.command = arguments.program.command;
  Advice advice = advise(arguments.options);
  write_files(advice, arguments.folder);
  constexpr std::size_t kColumns = 100;
  const std::size_t terminal = terminal_columns(STDOUT_FILENO);
  if (!arguments.program.json_on_output()) {
    fmt::print(stderr, "{}\n", headline("advise", arguments.options.gpus));
    const std::size_t columns = terminal == 0 ? kColumns : terminal;
    fmt::print("{}", text_of_advice(advice, colour_wanted(), columns));
    const std::string note = note_of_ranks(arguments.options.gpus, advice.runs.front().absent);
    for (const std::string& line : lines_of(note, columns)) fmt::print("{}\n", line);
  }
  write_json(arguments.program, json_text(json_of_advice(advice), 1));
  return advice.runs.front().exit_status();
}

}  // namespace

void add_advise(CLI::App& app, int& status) {
  auto arguments = std::make_shared<AdviseArguments>();
  AdviseOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "advise",
      "Say why a program does not fit on a GPU, by cause, and what would help.\n"
      "It is run on simulated GPUs as it is and, where it does not fit, on larger ones, to see "
      "what "
      "it needs. Remedies are ordered by what is lost: nothing, time, quality. Those asked for are "
      "tried by another run; the others are estimated, and marked so.\n"
      "\n"
      "Examples:\n"
      "  gapless advise --gpu 16GiB -- python train.py\n"
      "  gapless advise --gpu 16GiB --try all -- python train.py --batch-size 8\n"
      "  gapless advise --gpu T4 --try allocator,batch,checkpointing -- python train.py\n"
      "  gapless advise --gpu 8GiB --try all --write changed -- python train.py --config "
      "train.yaml\n"
      "  gapless advise --gpu 2x8GiB --steps 4 --json advice.json -- torchrun --nproc-per-node 2 "
      "train.py\n"
      "\n"
      "Exit status, as of gapless fits, by the run as it is: 0 every process fits; 3 one does not, "
      "or nobody knows of a program that ended well or was stopped; 2 bad input; else the "
      "program's own.");
  std::vector<std::string> names = remedy_names();
  names.insert(names.begin(), {"all", "none"});
  command
      ->add_option("-a,--allocator", options.allocator,
                   "What the program uses as it is: native, expandable, gapless, async (as gapless "
                   "fits has them)")
      ->capture_default_str()
      ->check(CLI::IsMember(simulated_allocators()));
  command
      ->add_option(
          "-t,--try", options.tries,
          fmt::format("Remedies to try, each by a run, separated by commas: {}. Where none "
                      "of them is enough, they are tried together, one more each time. "
                      "Other allocators are tried where the program does not fit, unless "
                      "others are named",
                      fmt::join(names, ", ")))
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(names))
      ->option_text("REMEDY,... [allocator]");
  command->add_option(
      "--write", arguments->folder,
      "Write the configuration files (Trainer's, accelerate's, DeepSpeed's) that the "
      "command names, as each remedy changes them, into this new folder");
  command
      ->add_option("--time-limit", options.limit_seconds, "Interrupt a run after so many seconds")
      ->check(CLI::NonNegativeNumber);
  command->add_flag(
      "--show-output", options.show_output,
      "Let the program print instead of keeping its output for the case that it fails");
  add_gpu_options(*command, options.gpus);
  command->footer(kOwnFolderHelp);
  add_program(
      *command, arguments->program,
      "Write the advice to this file; without one, to standard output in place of the text",
      [arguments] { return run(*arguments); }, status);
}

}  // namespace gapless::tools
