// The subcommands of `gapless`. Each adds itself to the command line and runs when it was chosen.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace gapless::tools {

/// What the program returns.
enum ExitStatus : int {
  kExitOk = 0,
  kExitInternal = 1,  // a bug
  kExitBadInput = 2,  // a wrong command line or file
  kExitNoFit = 3,     // something did not fit
};

/// Each takes the place of its result: the exit status.
void add_advise(CLI::App& app, int& status);
void add_convert(CLI::App& app, int& status);
void add_diff(CLI::App& app, int& status);
void add_dump(CLI::App& app, int& status);
void add_dryrun(CLI::App& app, int& status);
void add_fit(CLI::App& app, int& status);
void add_fits(CLI::App& app, int& status);
void add_generate(CLI::App& app, int& status);
void add_inspect(CLI::App& app, int& status);
void add_options(CLI::App& app, int& status);
void add_record(CLI::App& app, int& status);
void add_replay(CLI::App& app, int& status);
void add_run(CLI::App& app, int& status);
void add_search(CLI::App& app, int& status);
void add_top(CLI::App& app, int& status);
void add_view(CLI::App& app, int& status);

}  // namespace gapless::tools
