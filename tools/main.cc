// gapless: replay, fit, inspect and convert GPU memory traces.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include <fmt/format.h>

#include "allocator/base/error.h"
#include "allocator/base/nearest.h"
#include "allocator/gapless.h"
#include "tools/commands.h"
#include "tools/help_formatter.h"
#include "tools/last_words.h"
#include "tools/say.h"

namespace gapless::tools {
namespace {

// The name somebody may have meant in the place of `word`; empty where none is near.
std::string meant(const std::string& word, const std::vector<std::string>& names,
                  std::size_t most_edits = SIZE_MAX) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  return std::string(nearest(word, known, most_edits));
}

// Whether the first word names a command; said on standard error where it does not.
bool names_a_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return true;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return true;
  say(stderr, "gapless: there is no command \"{}\"; did you mean \"{}\"? There are {}\n", argv[1],
      meant(argv[1], names), fmt::format("{}", fmt::join(names, ", ")));
  return false;
}

std::vector<std::string> commands_with(const CLI::App& app, const std::string& option) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_option_no_throw(option) != nullptr) names.push_back(command->get_name());
  }
  return names;
}

// What CLI11 says of a wrong command line, and the options that may have been meant.
void say_what_is_wrong(const CLI::App& app, const CLI::ParseError& error) {
  app.exit(error);
  for (const CLI::App* command : app.get_subcommands()) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    for (const std::string& word : command->remaining()) {
      if (!word.starts_with("--")) continue;
      const std::string name = word.substr(0, word.find('='));
      if (const auto others = commands_with(app, name); !others.empty()) {
        say(stderr, "gapless {}: {} is an option of gapless {}\n", command->get_name(), name,
            fmt::format("{}", fmt::join(others, ", ")));
        continue;
      }
      // More edits make another word of it.
      if (const std::string near = meant(name, names, name.size() / 3); !near.empty()) {
        say(stderr, "gapless {}: did you mean \"{}\" with \"{}\"?\n", command->get_name(), near,
            name);
      }
    }
  }
}

}  // namespace

}  // namespace gapless::tools

int main(int argc, char** argv) {
  using namespace gapless::tools;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow so far is an error of its write
  CLI::App app(
      "gapless: a GPU memory allocator that leaves no gap, and tools to see what it saves.\n"
      "\n"
      "Examples:\n"
      "  gapless run -- python train.py                      with gapless as PyTorch's allocator\n"
      "  gapless replay snapshot.pickle                      how much would each allocator "
      "reserve?\n"
      "  gapless fit snapshot.pickle --allocator gapless     the smallest card it runs on\n"
      "  gapless inspect snapshot.pickle                     where did the memory go, and why?\n"
      "  gapless diff before.pickle after.pickle             what grew?\n"
      "  gapless view snapshot.pickle --open                 look at it in a browser\n"
      "  gapless convert snapshot.pickle -o run.gtrace       a file 20 times smaller\n"
      "  gapless fits --gpu 16GiB -- python train.py         does it fit, and what takes the "
      "memory?\n"
      "  gapless dryrun --gpu 16GiB -- python train.py       run it on GPUs that are not there\n"
      "  gapless top                                         running programs and their memory\n"
      "  gapless search --vary b=1:64 -- python train.py {b}  the largest setting that fits\n"
      "\n"
      "A snapshot is what torch.cuda.memory._dump_snapshot() writes.\n"
      "Exit status: 0 done, 2 bad input, 3 something did not fit or nobody knows.",
      "gapless");
  app.set_version_flag("--version", gapless_version());
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.failure_message([](const CLI::App*, const CLI::Error& error) {  // which quotes what was typed
    return gapless::terminal_text(error.what()) + "\nRun with --help for more information.\n";
  });
  int status = kExitOk;
  add_run(app, status);
  add_replay(app, status);
  add_fit(app, status);
  add_fits(app, status);
  add_inspect(app, status);
  add_diff(app, status);
  add_view(app, status);
  add_advise(app, status);
  add_convert(app, status);
  add_dryrun(app, status);
  add_search(app, status);
  add_top(app, status);
  add_record(app, status);
  add_dump(app, status);
  add_generate(app, status);
  add_options(app, status);
  if (!names_a_command(app, argc, argv)) return kExitBadInput;
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    say_what_is_wrong(app, error);
    return kExitBadInput;
  } catch (const gapless::tools::ProgramFailed& error) {
    std::fflush(stdout);
    say(stderr, "gapless: {}\n", error.what());
    if (!error.said().empty()) say(stderr, "the program's last words:\n");
    for (const std::string& line : error.said()) say(stderr, "  {}\n", line);
    return kExitBadInput;
  } catch (const gapless::InputError& error) {
    std::fflush(stdout);
    say(stderr, "gapless: {}\n", error.what());
    return kExitBadInput;
  } catch (const std::bad_alloc&) {
    std::fflush(stdout);
    say(stderr, "gapless: there is not enough memory on this machine\n");
    return kExitInternal;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    say(stderr, "gapless: internal error: {}\n", error.what());
    return kExitInternal;
  }
  return status;
}
