// gapless search: the largest setting with which a program fits, for each allocator.
//
//   --vary batch-size=1:256 -- python train.py --batch-size {batch-size}
//     -> probes: gapless dryrun ... -- python train.py --batch-size 48     (search/search.h)
//     -> the largest that fits, proven by the next one's failure           (search/boundary.h)
#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "simgpu/front_libraries.h"
#include "simgpu/process/gpu_profile.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/launch.h"
#include "tools/own_folder.h"
#include "tools/program_options.h"
#include "tools/progress.h"
#include "tools/say.h"
#include "tools/search/search.h"
#include "tools/search/search_report.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/torch_settings.h"
#include "tools/words_of_program.h"

namespace gapless::tools {
namespace {

struct SearchArguments {
  SearchOptions options;
  std::vector<std::string> vary;
  ProgramOptions program;
};

void check(SearchArguments& arguments) {
  SearchOptions& options = arguments.options;
  spell_out(options.allocators);
  check(options.gpus, options.allocators);
  leave_out_torch_settings("search", options.allocators);
  const auto& asked = options.allocators;
  for (auto each = asked.begin(); each != asked.end(); ++each) {
    if (std::find(asked.begin(), each, *each) != each) {
      throw InputError("--allocator: " + *each + " is there twice");
    }
  }
  if (std::find(asked.begin(), asked.end(), "gapless") != asked.end()) {
    (void)preload_library();
  }
  (void)simgpu::front_folder();
  check_json_file(arguments.program);
  check_writable(options.resume, "--resume");
}

int run(SearchArguments& arguments) {
  check(arguments);
  keep_piped_input(arguments.program.command);
  tell_of_words("gapless search", arguments.program.command, arguments.options.gpus);
  std::vector<Varied> varied;
  for (const std::string& text : arguments.vary) varied.push_back(read_varied(text));
  Search search(VariedCommand(arguments.program.command, std::move(varied)), arguments.options);
  fmt::print(stderr, "{}", headline("search", arguments.options.gpus));
  Progress progress;
  const int signal = search.run([&](const SearchCell* cell, std::size_t index) {
    if (cell != nullptr) {
      progress.clear();
      fmt::print(stderr, "{}", message("gapless search: " + line_of(search, *cell, index)));
    }
    progress.show_line(fmt::format("{} probes done; running: {}", search.probes_done(),
                                   fmt::join(search.running(), "; ")));
  });
  progress.clear();
  std::FILE* const people = arguments.program.json_on_output() ? stderr : stdout;
  const std::size_t columns = terminal_columns(fileno(people));
  std::fflush(stderr);
  fmt::print(people, "{}", text_of(search, people == stdout && colour_wanted(), columns));
  write_json(arguments.program,
             json_of(search).dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace));
  if (signal != 0) {
    say(stderr, "gapless search: broken off{}\n",
        arguments.options.resume.empty()
            ? "; with --resume FILE another search would go on from here"
            : "; the same command goes on from here");
    return 128 + signal;
  }
  return all_found(search) ? kExitOk : kExitNoFit;
}

}  // namespace

void add_search(CLI::App& app, int& status) {
  auto arguments = std::make_shared<SearchArguments>();
  SearchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "search",
      "Find the largest setting, such as a batch size, with which a program fits on GPUs that are "
      "not there, for each allocator.\n"
      "Each probe is a dry run. An answer is proven: it fits, and the next setting was run and "
      "does "
      "not.\n"
      "\n"
      "Examples:\n"
      "  gapless search --gpu 16GiB --vary batch=1:256 -- python train.py -b {batch}\n"
      "  gapless search --gpu 24GiB --vary batch=8:64:8 --resume found.json --json -- \\\n"
      "      python train.py --batch-size={batch}\n"
      "  gapless search --gpu T4 --vary precision=fp32,bf16 --vary batch=1:64 -- \\\n"
      "      python train.py --precision {precision} --batch {batch}\n"
      "  gapless search --gpu A100 --vary train.yaml:trainer.batch_size=1:64 -- \\\n"
      "      python train.py --config train.yaml\n"
      "\n"
      "With several --vary the last one that ascends is searched, for each combination of the "
      "others' values. Fits means a plain \"yes\" of gapless dryrun: a program that caught an out "
      "of "
      "memory does not.\n"
      "\n"
      "Exit status: 0 every allocator has its answer; 3 nothing fits with one of them, or it is "
      "not "
      "known; 2 bad input, or a program that fails for another reason than memory; 128 and the "
      "signal that broke it off.");
  command
      ->add_option(
          "-v,--vary", arguments->vary,
          "What is varied: NAME=MIN:MAX, NAME=MIN:MAX:STEP or NAME=A,B,C, where the "
          "command has {NAME} ({{NAME}} is left as {NAME}); or FILE:KEY=..., a value in a "
          ".json, .toml or .yaml file that the command names, which is copied, not changed")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("-a,--allocator", options.allocators,
                   "gapless, native, expandable, async (as gapless dryrun has them), separated by "
                   "commas; all: gapless, native, expandable")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(allocator_words()))
      ->option_text("NAME,... [native,expandable,gapless]");
  command->add_option("-j,--jobs", options.jobs,
                      "Probes at a time; where not given, as many as there are processors and "
                      "memory for, and one of programs that start ranks");
  command
      ->add_option("-t,--timeout", options.timeout_seconds,
                   "Seconds that one probe may take; what it would have said is then not known")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  command->add_option("--resume", options.resume,
                      "Keep results of probes in this file, and use those that are in it: of the "
                      "same command, files that it names, GPUs, allocator and version");
  add_gpu_options(*command, options.gpus);
  command->footer(kOwnFolderHelp);
  add_program(
      *command, arguments->program,
      "Write what was found, with every probe's, to this file; without one, to "
      "standard output",
      [arguments] { return run(*arguments); }, status);
}

}  // namespace gapless::tools
