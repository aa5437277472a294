#include "tools/watched_program.h"

#include <atomic>
#include <cerrno>
#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "tools/memory_kills.h"

namespace gapless::tools {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> interrupts{0};

extern "C" void count_interrupt(int) { ++interrupts; }

// What takes its leave so quickly nobody is told of.
constexpr std::chrono::seconds kUnseen{2};

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

// Until nothing is at work of what the command left running, it takes too long, or somebody has
// enough of it.
WatchedEnd::By wait_for(LeftRunning& left, const Watching& watching, Clock::time_point begin) {
  const Clock::time_point ended = Clock::now();
  bool told = false;
  for (;;) {
    const Clock::time_point now = Clock::now();
    if (!left.at_work(now)) return WatchedEnd::By::itself;
    if (interrupts != 0) return WatchedEnd::By::user;
    if (watching.limit && now - begin > *watching.limit) return WatchedEnd::By::limit;
    if (!told && now - ended > kUnseen && watching.waits) watching.waits(left.names());
    told = told || now - ended > kUnseen;
    if (watching.look) watching.look();
    usleep(now - ended < kUnseen ? 20'000 : 200'000);
  }
}

}  // namespace

WatchedEnd wait_for_left(LeftRunning& left, const Watching& watching, const Ended& ended) {
  if (ended.was_told || ended.was_interrupted) return {ended, WatchedEnd::By::user};
  if (ended.by_signal) return {ended, WatchedEnd::By::itself};
  const CountedInterrupts counted;
  return {ended, wait_for(left, watching, Clock::now())};
}

WatchedEnd run_watched(const std::vector<std::string>& command, const Variables& variables,
                       const Watching& watching, LeftRunning& left) {
  const CountedInterrupts counted;
  const MemoryKills kills;
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
  if (!stop.begun()) end.by = wait_for(left, watching, begin);
  const bool by_signal = WIFSIGNALED(status);
  end.ended = {child,
               by_signal,
               by_signal ? WTERMSIG(status) : WEXITSTATUS(status),
               /*was_told=*/false,
               /*was_interrupted=*/false,
               kills.any()};
  return end;
}

}  // namespace gapless::tools
