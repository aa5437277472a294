// Programs that `gapless` starts: with libraries in front of theirs, and variables of their own.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace gapless::tools {

/// libgapless_preload.so beside the running command (lib/, ../lib/), by a path that LD_PRELOAD can
/// hold. Throws InputError where it is not there.
std::filesystem::path preload_library();

/// Throws InputError where the options a program is to have with gapless, `conf` or, where that is
/// empty, GAPLESS_CONF's, cannot be understood: it would end with that, or run without them.
void check_conf(const std::string& conf);

/// The list with `path` in front of it; either may be empty.
std::string in_front(const std::string& path, const char* list);

using Variables = std::vector<std::pair<std::string, std::string>>;

/// How a program ended.
struct Ended {
  pid_t pid = 0;
  bool by_signal = false;
  int code = 0;                  // its exit status, or the signal
  bool was_told = false;         // this process was told to end meanwhile, and passed that on
  bool was_interrupted = false;  // this process was meanwhile (^C), as the program was by itself
  // The system ended processes meanwhile since this machine's memory had run out.
  bool memory_ran_out = false;

  /// As a shell has it: 128 + the signal that ended it.
  [[nodiscard]] int status() const { return by_signal ? 128 + code : code; }
};

/// Where the command names standard input ("-", /dev/stdin) and that is a pipe, as of `python -
/// <<'E'`, reads it to its end, so that each of several runs has all of it. What is a file each run
/// reads from where it stands, in any case. Throws InputError where it cannot be kept.
void keep_piped_input(const std::vector<std::string>& command);

/// Runs a program and waits for it. The terminal's interrupt is left to the program, and signals to
/// end are passed on to it. Throws InputError where it cannot be started.
Ended run_program(const std::vector<std::string>& command, const Variables& variables);
/// Begins a program in a process group of its own, which the terminal does not interrupt and which
/// is told to end (SIGTERM) when this one does. Its output goes into a file, and it has no input
/// but a file's; where no file is named it has this one's. Throws InputError where it cannot be
/// started.
pid_t start_program(const std::vector<std::string>& command, const Variables& variables,
                    const std::filesystem::path& output);
/// The program in the place of this one; throws InputError where it cannot be started.
[[noreturn]] void become_program(const std::vector<std::string>& command,
                                 const Variables& variables);

}  // namespace gapless::tools
