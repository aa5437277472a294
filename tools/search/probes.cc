#include "tools/search/probes.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/search/host_memory.h"

namespace gapless::tools {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenLooks{100};
// A program that was told to end has so long to do it.
constexpr std::chrono::seconds kToEnd{5};

}  // namespace

Probes::Probes() {
  sigemptyset(&watched_);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched_, signal);
  sigprocmask(SIG_BLOCK, &watched_, &before_);
}

Probes::~Probes() {
  while (!running_.empty()) stop(running_.begin()->first);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void Probes::start(std::size_t id, const std::vector<std::string>& command, Variables variables,
                   const std::filesystem::path& output, double seconds) {
  const std::string value = fmt::format("{}.{}", getpid(), started_++);
  constexpr const char* kMark = "GAPLESS_PROBE";
  Probe probe;
  probe.mark = fmt::format("{}={}", kMark, value);
  probe.begun = Clock::now();
  const std::chrono::duration<double> limit(seconds);
  probe.ends = probe.begun + std::chrono::duration_cast<Clock::duration>(limit);
  variables.emplace_back(kMark, value);
  probe.pid = start_program(command, variables, output);
  running_.emplace(id, std::move(probe));
}

// All but the dry run itself: when its program has ended it takes its files away.
void Probes::end_programs(const Probe& probe) {
  for (const pid_t process : processes_with(probe.mark)) {
    if (process != probe.pid) kill(process, SIGKILL);
  }
}

void Probes::stop(std::size_t id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const Probe& probe = found->second;
  const Clock::time_point last = Clock::now() + kToEnd;
  while (waitpid(probe.pid, nullptr, WNOHANG) == 0) {
    end_programs(probe);
    if (Clock::now() > last) kill(probe.pid, SIGKILL);
    usleep(10'000);
  }
  end_programs(probe);
  running_.erase(found);
}

void Probes::look_at(Probe& probe) {
  const std::vector<pid_t> processes = processes_with(probe.mark);
  probe.host_bytes = 0;
  for (const pid_t process : processes) probe.host_bytes += host_bytes_of(process);
  probe.most_host_bytes = std::max(probe.most_host_bytes, probe.host_bytes);
  if (Clock::now() < probe.ends) return;
  if (!probe.timed_out) {
    // Which `gapless dryrun` tells its program, and then it says what is known.
    kill(probe.pid, SIGTERM);
  } else {
    end_programs(probe);
    if (processes.size() <= 1) kill(probe.pid, SIGKILL);
  }
  probe.timed_out = true;
  probe.ends = Clock::now() + kToEnd;
}

std::optional<Probes::Over> Probes::over() {
  for (auto& [id, probe] : running_) {
    int status = 0;
    if (waitpid(probe.pid, &status, WNOHANG) != probe.pid) continue;
    end_programs(probe);
    const std::chrono::duration<double> took = Clock::now() - probe.begun;
    const Over over{id, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
                    probe.timed_out, took.count(), probe.most_host_bytes};
    running_.erase(id);
    return over;
  }
  return {};
}

std::optional<Probes::Over> Probes::wait() {
  if (auto ended = over()) return ended;
  const timespec moment{0, std::chrono::nanoseconds(kBetweenLooks).count()};
  const int signal = sigtimedwait(&watched_, nullptr, &moment);
  if (signal > 0 && signal != SIGCHLD) told_to_end_ = signal;
  if (Clock::now() - looked_ >= kBetweenLooks) {
    looked_ = Clock::now();
    for (auto& [id, probe] : running_) look_at(probe);
  }
  return over();
}

std::uint64_t Probes::host_bytes_to_come(std::uint64_t each) const {
  std::uint64_t bytes = 0;
  for (const auto& [id, probe] : running_) {
    bytes += each - std::min(each, probe.host_bytes);
  }
  return bytes;
}

}  // namespace gapless::tools
