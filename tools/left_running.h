// What a command leaves running as it ends is a part of what was asked about, and waited for.
//
//   nohup python train.py &    the shell has ended, it trains     -> waited for
//   python serve.py &          does nothing more for 10 s         -> told that it still ran; ended
//
// Where it ends with a status other than 0 and used no GPU, nothing else would tell. Helpers that
// end since the command has ended (Ray's workers do so, with 1) are not told of.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/types.h>

namespace gapless::tools {

class LeftRunning {
 public:
  using Clock = std::chrono::steady_clock;

  /// Made before the command is started: what loses its parent from now on is this process's child.
  LeftRunning();
  /// Ends what is left of it.
  ~LeftRunning();
  LeftRunning(const LeftRunning&) = delete;
  LeftRunning& operator=(const LeftRunning&) = delete;

  /// Whether any of it is at work, as it is `now`; asked again and again once the command has
  /// ended.
  bool at_work(Clock::time_point now);
  /// What is there, "python train.py (4711)", as at_work saw it last.
  [[nodiscard]] std::string names() const;
  /// A sentence for each that failed, and for each that is there still, but those in `judged`, who
  /// are told of otherwise.
  [[nodiscard]] std::vector<std::string> told(const std::vector<int>& judged) const;

 private:
  // Whoever trains, loads or compiles uses a processor or a disk more often; who waits for requests
  // may do so for ever.
  static constexpr std::chrono::seconds kQuiet{10};
  static constexpr std::chrono::milliseconds kBetweenLooks{500};

  struct Process {
    pid_t parent = 0;
    char state = '?';
    std::uint64_t ticks = 0;  // of processor time, with that of children that it waited for
    double begun = 0;         // seconds since the machine was started
    std::string name;
  };
  using Processes = std::map<pid_t, Process>;

  static Processes all_processes();
  // Those whose parent this process is, and which were not there before.
  [[nodiscard]] std::vector<pid_t> left_of(const Processes& all) const;
  void reap(const Processes& all);

  struct Failed {
    pid_t pid;
    std::string name;
    int status;
  };

  // Whether it was there well before the command ended, and ends with it.
  [[nodiscard]] bool was_helper(const Process& process) const;

  std::vector<pid_t> before_;
  std::optional<double> since_;  // the command has ended: seconds since the machine was started
  std::map<pid_t, std::string> names_;  // of those that are there
  std::vector<Failed> failed_;
  std::map<pid_t, std::uint64_t> ticks_;  // of these and all that descends from them, at last look
  Clock::time_point looked_{};
  Clock::time_point worked_{};
  bool at_work_ = false;
};

/// That these are waited for, as `command` says it on its way.
std::string waiting_for(const std::string& command, const std::string& names);

/// What is told of what was left running, in the notes of the first row; in the reason, where no
/// process used a GPU.
void tell_of_left(nlohmann::json& rows, const LeftRunning& left);

}  // namespace gapless::tools
