#include "tools/watched_program.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/error.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::atomic<int> interrupts{0};

extern "C" void count_interrupt(int) { ++interrupts; }

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// While it lives, interrupts are counted.
class CountedInterrupts {
 public:
  CountedInterrupts() {
    interrupts = 0;
    struct sigaction action {};
    action.sa_handler = count_interrupt;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], &action, &before_[i]);
    }
  }
  ~CountedInterrupts() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
  CountedInterrupts(const CountedInterrupts&) = delete;
  CountedInterrupts& operator=(const CountedInterrupts&) = delete;

 private:
  struct sigaction before_[std::size(kSignals)]{};
};

// In the child; returns only where the program cannot be started: errno.
int become(const std::vector<std::string>& command, const Variables& variables,
           const fs::path& output) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);  // as main() found it
  if (!output.empty()) {
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (in < 0 || out < 0) return errno;
    dup2(in, STDIN_FILENO);
    for (const int file : {STDOUT_FILENO, STDERR_FILENO}) dup2(out, file);
  }
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  execvp(argv[0], argv.data());
  return errno;
}

// Processes whose parent is this one: those that lost theirs are, too (PR_SET_CHILD_SUBREAPER).
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  const std::string parent = std::to_string(getpid());
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    const std::size_t name_end = stat.rfind(") ");  // the program's name may have any characters
    if (name_end == std::string::npos || stat.size() < name_end + 5) continue;
    if (stat.compare(name_end + 4, parent.size() + 1, parent + " ") == 0) {
      found.push_back(static_cast<pid_t>(std::atoi(name.c_str())));
    }
  }
  return found;
}

void end_all_left(const std::vector<pid_t>& before) {
  constexpr int kGenerations = 100;
  for (int i = 0; i < kGenerations; ++i) {
    bool any = false;
    for (const pid_t child : children()) {
      if (std::find(before.begin(), before.end(), child) != before.end()) continue;
      any = true;
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    if (!any) return;
  }
}

// How a program is made to end: asked, told, and ended, each after some seconds.
class Stop {
 public:
  explicit Stop(pid_t group) : group_(group) {}
  void begin() {
    if (stage_ == 0) next();
  }
  void hurry() {
    stage_ = kKill - 1;
    next();
  }
  void look() {
    if (stage_ != 0 && stage_ < kKill && Clock::now() - since_ > std::chrono::seconds(8)) next();
  }
  [[nodiscard]] bool begun() const { return stage_ != 0; }

 private:
  static constexpr int kKill = 3;
  void next() {
    constexpr int kSteps[] = {0, SIGINT, SIGTERM, SIGKILL};
    since_ = Clock::now();
    kill(-group_, kSteps[++stage_]);
  }
  pid_t group_;
  int stage_ = 0;
  Clock::time_point since_{};
};

}  // namespace

WatchedEnd run_watched(const std::vector<std::string>& command, const Variables& variables,
                       const Watching& watching) {
  int failed[2];
  if (pipe2(failed, O_CLOEXEC) != 0) throw InputError("pipe: " + std::string(std::strerror(errno)));
  const CountedInterrupts counted;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::vector<pid_t> before = children();
  const pid_t child = fork();
  if (child < 0) throw InputError("fork: " + std::string(std::strerror(errno)));
  if (child == 0) {
    const int error = become(command, variables, watching.output);
    (void)!write(failed[1], &error, sizeof error);
    _exit(127);
  }
  setpgid(child, child);  // whoever of both is first
  close(failed[1]);
  int error = 0;
  ssize_t got = 0;
  while ((got = read(failed[0], &error, sizeof error)) < 0 && errno == EINTR) {
  }
  close(failed[0]);
  WatchedEnd end;
  Stop stop(child);
  const Clock::time_point begin = Clock::now();
  int status = 0;
  for (int turn = 0;; ++turn) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) break;
    if (interrupts != 0) {
      if (!stop.begun()) end.by = WatchedEnd::By::user;
      stop.begin();
      if (interrupts > 1) stop.hurry();
    } else if (watching.limit && !stop.begun() && Clock::now() - begin > *watching.limit) {
      end.by = WatchedEnd::By::limit;
      stop.begin();
    }
    stop.look();
    constexpr int kTurnsALook = 10;
    if (watching.look && turn % kTurnsALook == kTurnsALook - 1) watching.look();
    usleep(20'000);
  }
  if (stop.begun()) end_all_left(before);
  if (got == sizeof error) {
    throw InputError(command[0] + ": cannot be run: " + std::strerror(error));
  }
  end.ended = WIFSIGNALED(status) ? Ended{child, true, WTERMSIG(status)}
                                  : Ended{child, false, WEXITSTATUS(status)};
  return end;
}

}  // namespace gapless::tools
