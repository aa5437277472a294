// Probes: dry runs of a search, several at once.
//
//   start(3, ...)  start(4, ...)          wait()  ->  3 has ended, after 6 s, with 1.9 GiB at most
//
// Each is a `gapless dryrun` of its own, in a process of its own, and leaves nothing behind: what
// it started and did not end is ended with it.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch.h"

namespace gapless::tools {

class Probes {
 public:
  using Clock = std::chrono::steady_clock;

  struct Over {
    std::size_t id = 0;
    int status = 0;  // as a shell has it
    bool timed_out = false;
    double seconds = 0;
    std::uint64_t host_bytes = 0;  // the most that was seen
  };

  /// Signals that end this program are held from here on: wait() returns, and they are told.
  Probes();
  /// Stops those that run.
  ~Probes();
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

  /// Runs a command with its output in a file and these variables; it is ended after so many
  /// seconds. Throws InputError.
  void start(std::size_t id, const std::vector<std::string>& command, Variables variables,
             const std::filesystem::path& output, double seconds);
  void stop(std::size_t id);

  /// Until one is over, or for a moment.
  std::optional<Over> wait();

  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] bool runs(std::size_t id) const { return running_.count(id) != 0; }
  /// What they may still take, where each takes as much as `each`.
  [[nodiscard]] std::uint64_t host_bytes_to_come(std::uint64_t each) const;
  /// The signal that asked this program to end; 0 where none has.
  [[nodiscard]] int told_to_end() const { return told_to_end_; }

 private:
  struct Probe {
    pid_t pid = 0;
    std::string mark;  // a variable that all its processes have
    Clock::time_point begun;
    Clock::time_point ends;
    bool timed_out = false;
    std::uint64_t host_bytes = 0;
    std::uint64_t most_host_bytes = 0;
  };

  std::optional<Over> over();
  void look_at(Probe& probe);
  static void end_programs(const Probe& probe);

  std::map<std::size_t, Probe> running_;
  std::size_t started_ = 0;
  Clock::time_point looked_;
  int told_to_end_ = 0;
  sigset_t watched_{};
  sigset_t before_{};
};

}  // namespace gapless::tools
