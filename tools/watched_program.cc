#include "tools/watched_program.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
  const CountedInterrupts counted;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::vector<pid_t> before = children();
  const pid_t child = start_program(command, variables, watching.output);
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
  end.ended = WIFSIGNALED(status) ? Ended{child, true, WTERMSIG(status)}
                                  : Ended{child, false, WEXITSTATUS(status)};
  return end;
}

}  // namespace gapless::tools
