#include "tools/launch.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/error.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

// Returns only where the program cannot be started: errno.
int execute(const std::vector<std::string>& command, const Variables& variables) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  execvp(argv[0], argv.data());
  return errno;
}

[[noreturn]] void cannot_start(const std::string& program, int error) {
  throw InputError(program + ": cannot be run: " + std::strerror(error));
}

}  // namespace

fs::path preload_library() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* place : {"../lib", "../lib/gapless", "lib"}) {
    const fs::path path = here / place / "libgapless_preload.so";
    if (fs::exists(path)) return fs::canonical(path);
  }
  throw InputError("libgapless_preload.so is not beside " + here.string() +
                   "; build all of gapless");
}

std::string in_front(const std::string& path, const char* list) {
  if (list == nullptr || *list == '\0') return path;
  return path.empty() ? list : path + ":" + list;
}

Ended run_program(const std::vector<std::string>& command, const Variables& variables) {
  int failed[2];
  if (pipe2(failed, O_CLOEXEC) != 0) throw InputError("pipe: " + std::string(std::strerror(errno)));
  const pid_t child = fork();
  if (child == 0) {
    const int error = execute(command, variables);
    (void)!write(failed[1], &error, sizeof error);
    _exit(127);
  }
  close(failed[1]);
  int error = 0;
  const bool not_started = read(failed[0], &error, sizeof error) == sizeof error;
  close(failed[0]);
  // What the program leaves is reported.
  std::signal(SIGINT, SIG_IGN);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, SIG_DFL);
  if (not_started) cannot_start(command[0], error);
  if (WIFSIGNALED(status)) return {child, true, WTERMSIG(status)};
  return {child, false, WEXITSTATUS(status)};
}

void become_program(const std::vector<std::string>& command, const Variables& variables) {
  cannot_start(command[0], execute(command, variables));
}

}  // namespace gapless::tools
