#include "tools/launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/device/options.h"
#include "simgpu/preload_path.h"
#include "tools/memory_kills.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

// Where what is typed comes from a file: it opened anew, where it is read next. A program is run
// several times, some at once, and each is to read all of it. Otherwise -1.
int input_file() {
  struct stat facts {};
  if (fstat(STDIN_FILENO, &facts) != 0 || !S_ISREG(facts.st_mode)) return -1;
  const int in = open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC);
  if (in >= 0) lseek(in, lseek(STDIN_FILENO, 0, SEEK_CUR), SEEK_SET);
  return in;
}

// Returns only where the program cannot be started: errno.
int execute(const std::vector<std::string>& command, const Variables& variables) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  if (const int in = input_file(); in >= 0) dup2(in, STDIN_FILENO);
  std::signal(SIGXFSZ, SIG_DFL);  // as main() found it
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  execvp(argv[0], argv.data());
  return errno;
}

// Signals that wait until it is known what to do with them.
class HeldSignals {
 public:
  HeldSignals(std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, &before_);
  }
  void release() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// The program that is waited for.
std::atomic<pid_t> running{0};

std::atomic<bool> passed_on{false};

std::atomic<bool> interrupted{false};

extern "C" void note_interrupt(int) { interrupted = true; }

extern "C" void pass_on(int signal) {
  passed_on = true;
  if (const pid_t child = running; child != 0) kill(child, signal);
}

// In a child, in a group of its own; returns only where the program cannot be started: errno.
int execute_apart(const std::vector<std::string>& command, const Variables& variables,
                  const fs::path& output, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) return ESRCH;  // it ended before that
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!output.empty()) {
    const int from_file = input_file();
    const int in = from_file >= 0 ? from_file : open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (in < 0 || out < 0) return errno;
    dup2(in, STDIN_FILENO);
    for (const int file : {STDOUT_FILENO, STDERR_FILENO}) dup2(out, file);
  }
  return execute(command, variables);
}

// What a child wrote before it ended; 0 where it became the program.
int read_error(int pipe) {
  int error = 0;
  ssize_t got = 0;
  while ((got = read(pipe, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  return got == sizeof error ? error : 0;
}

// By whom a file is run that is no command itself; empty where that is not known.
std::string interpreter_of(const std::string& program) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(program, error)) return {};
  const std::string extension = std::filesystem::path(program).extension();
  if (extension == ".py") return "python";
  if (extension == ".sh") return "bash";
  if (extension == ".ipynb") return "jupyter nbconvert --to notebook --execute";
  return {};
}

// What a shell would have made of it.
std::string for_a_shell(const std::vector<std::string>& command) {
  const std::string& program = command.front();
  if (const std::string interpreter = interpreter_of(program); !interpreter.empty()) {
    return "it is no command; try: " + interpreter + " " + program;
  }
  const std::size_t equals = program.find('=');
  if (equals != std::string::npos && equals > 0 && program.find('/') > equals) {
    return "variables are set by env; try: env " + program + (command.size() > 1 ? " ..." : "");
  }
  if (command.size() == 1 && program.find(' ') != std::string::npos) {
    return "it is one word; leave its quotes away, or try: sh -c '" + program + "'";
  }
  return {};
}

[[noreturn]] void cannot_start(const std::vector<std::string>& command, int error) {
  const std::string otherwise = for_a_shell(command);
  throw InputError(command.front() +
                   ": cannot be run: " + (otherwise.empty() ? std::strerror(error) : otherwise));
}

}  // namespace

fs::path preload_library() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* place : {"../lib", "../lib/gapless/lib", "lib"}) {
    constexpr const char* kName = "libgapless_preload.so";
    if (fs::exists(here / place / kName)) return simgpu::preloadable(here / place) / kName;
  }
  throw InputError("libgapless_preload.so is not beside " + here.string() +
                   "; build all of gapless");
}

void check_conf(const std::string& conf) {
  (void)(conf.empty() ? options_from_environment() : read_options(conf, "--conf"));
}

std::string in_front(const std::string& path, const char* list) {
  if (list == nullptr || *list == '\0') return path;
  return path.empty() ? list : path + ":" + list;
}

void keep_piped_input(const std::vector<std::string>& command) {
  struct stat facts {};
  const bool piped = fstat(STDIN_FILENO, &facts) == 0 && S_ISFIFO(facts.st_mode);
  const bool named = std::any_of(command.begin(), command.end(), [](const std::string& word) {
    return word == "-" || word == "/dev/stdin";
  });
  if (!piped || !named) return;
  const auto fail = [] {
    throw InputError("standard input: " + std::string(std::strerror(errno)));
  };
  const int kept = memfd_create("input", MFD_CLOEXEC);
  if (kept < 0) fail();
  std::array<char, 1 << 16> part{};
  while (true) {
    const ssize_t got = read(STDIN_FILENO, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail();
    if (got == 0) break;
    for (ssize_t written = 0; written < got;) {
      const ssize_t more =
          write(kept, part.data() + written, static_cast<std::size_t>(got - written));
      if (more < 0) fail();
      written += more;
    }
  }
  lseek(kept, 0, SEEK_SET);
  dup2(kept, STDIN_FILENO);
  close(kept);
}

Ended run_program(const std::vector<std::string>& command, const Variables& variables) {
  const MemoryKills kills;
  int failed[2];
  if (pipe2(failed, O_CLOEXEC) != 0) throw InputError("pipe: " + std::string(std::strerror(errno)));
  const HeldSignals held({SIGINT, SIGTERM, SIGHUP});
  const pid_t child = fork();
  if (child == 0) {
    held.release();
    const int error = execute(command, variables);
    (void)!write(failed[1], &error, sizeof error);
    _exit(127);
  }
  // What the program leaves is reported: the terminal interrupts it as well, and whoever ends us
  // means it.
  running = child;
  passed_on = false;
  interrupted = false;
  std::signal(SIGINT, note_interrupt);
  for (const int end : {SIGTERM, SIGHUP}) std::signal(end, pass_on);
  held.release();
  close(failed[1]);
  const int error = read_error(failed[0]);
  close(failed[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running = 0;
  for (const int end : {SIGINT, SIGTERM, SIGHUP}) std::signal(end, SIG_DFL);
  if (error != 0) cannot_start(command, error);
  const bool by_signal = WIFSIGNALED(status);
  return {child,     by_signal,   by_signal ? WTERMSIG(status) : WEXITSTATUS(status),
          passed_on, interrupted, kills.any()};
}

pid_t start_program(const std::vector<std::string>& command, const Variables& variables,
                    const fs::path& output) {
  int failed[2];
  if (pipe2(failed, O_CLOEXEC) != 0) throw InputError("pipe: " + std::string(std::strerror(errno)));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    const int error = execute_apart(command, variables, output, parent);
    (void)!write(failed[1], &error, sizeof error);
    _exit(127);
  }
  close(failed[1]);
  const int no_child = errno;
  if (child > 0) setpgid(child, child);  // whoever of both is first
  const int error = child < 0 ? 0 : read_error(failed[0]);
  close(failed[0]);
  if (child < 0) throw InputError("fork: " + std::string(std::strerror(no_child)));
  if (error != 0) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    cannot_start(command, error);
  }
  return child;
}

void become_program(const std::vector<std::string>& command, const Variables& variables) {
  cannot_start(command, execute(command, variables));
}

}  // namespace gapless::tools
