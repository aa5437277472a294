#include "tools/left_running.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/text_of_file.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

double seconds_since_start() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// As it was typed, short enough for a sentence; a program that has ended has only its file's name.
std::string name_of(const fs::path& process, const std::string& file_name) {
  constexpr std::size_t kMost = 60;
  std::string words = text_of_file(process / "cmdline");
  while (!words.empty() && words.back() == '\0') words.pop_back();
  if (words.empty()) return file_name;
  std::replace(words.begin(), words.end(), '\0', ' ');
  for (char& c : words) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return words.size() <= kMost ? words : words.substr(0, kMost - 3) + "...";
}

}  // namespace

LeftRunning::LeftRunning() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  before_ = left_of(all_processes());
}

LeftRunning::~LeftRunning() {
  constexpr int kGenerations = 200;
  constexpr int kAsked = 40;  // times 50 ms, before they are no longer asked
  for (int i = 0; i < kGenerations; ++i) {
    const Processes all = all_processes();
    reap(all);
    const std::vector<pid_t> left = left_of(all);
    if (left.empty()) return;
    for (const pid_t process : left) kill(process, i < kAsked ? SIGTERM : SIGKILL);
    usleep(i == 0 ? 5'000 : 50'000);
  }
}

LeftRunning::Processes LeftRunning::all_processes() {
  Processes all;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string number = entry.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = text_of_file(entry.path() / "stat");
    const std::size_t open = stat.find('(');
    const std::size_t close = stat.rfind(')');  // the program's name may have any characters
    if (open == std::string::npos || close == std::string::npos) continue;
    Process process;
    std::istringstream fields(stat.substr(close + 1));
    fields >> process.state >> process.parent;
    // proc(5): fields 5 to 13, then utime, stime, cutime and cstime.
    std::string skipped;
    for (int field = 5; field < 14; ++field) fields >> skipped;
    for (int i = 0; i < 4; ++i) {
      std::uint64_t ticks = 0;
      fields >> ticks;
      process.ticks += ticks;
    }
    // Fields 18 to 21, and starttime.
    for (int field = 18; field < 22; ++field) fields >> skipped;
    std::uint64_t begun = 0;
    fields >> begun;
    process.begun = static_cast<double>(begun) / static_cast<double>(sysconf(_SC_CLK_TCK));
    if (process.parent == getpid()) {
      process.name = name_of(entry.path(), stat.substr(open + 1, close - open - 1));
    }
    all.emplace(static_cast<pid_t>(std::atoi(number.c_str())), std::move(process));
  }
  return all;
}

std::vector<pid_t> LeftRunning::left_of(const Processes& all) const {
  std::vector<pid_t> left;
  for (const auto& [pid, process] : all) {
    if (process.parent == getpid() &&
        std::find(before_.begin(), before_.end(), pid) == before_.end()) {
      left.push_back(pid);
    }
  }
  return left;
}

bool LeftRunning::was_helper(const Process& process) const {
  constexpr double kShort = 3;
  return !since_ || (seconds_since_start() - *since_ < kShort && process.begun < *since_ - kShort);
}

void LeftRunning::reap(const Processes& all) {
  for (const pid_t pid : left_of(all)) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) != pid) continue;
    const auto named = names_.find(pid);
    // Whoever was ended by a signal was meant to end.
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && !was_helper(all.at(pid))) {
      failed_.push_back(
          {pid, named == names_.end() ? all.at(pid).name : named->second, WEXITSTATUS(status)});
    }
    if (named != names_.end()) names_.erase(named);
  }
}

bool LeftRunning::at_work(Clock::time_point now) {
  const bool first = looked_ == Clock::time_point{};
  if (!first && now - looked_ < kBetweenLooks) return at_work_;
  if (!since_) since_ = seconds_since_start();
  reap(all_processes());
  const Processes all = all_processes();
  std::set<pid_t> of_it;
  names_.clear();
  for (const pid_t pid : left_of(all)) {
    of_it.insert(pid);
    names_[pid] = all.at(pid).name;
  }
  if (of_it.empty()) return at_work_ = false;
  for (bool more = true; more;) {
    more = false;
    for (const auto& [pid, process] : all) {
      if (of_it.contains(process.parent)) more = of_it.insert(pid).second || more;
    }
  }
  // A twentieth of a processor's time, or a wait for a disk.
  const auto enough = static_cast<double>(sysconf(_SC_CLK_TCK)) / 20 *
                      std::chrono::duration<double>(now - looked_).count();
  bool works = first;
  std::map<pid_t, std::uint64_t> ticks;
  for (const pid_t pid : of_it) {
    const Process& process = all.at(pid);
    ticks[pid] = process.ticks;
    const auto was = ticks_.find(pid);
    works = works || process.state == 'D' || was == ticks_.end() ||
            static_cast<double>(process.ticks - was->second) >= enough;
  }
  ticks_ = std::move(ticks);
  looked_ = now;
  if (works) worked_ = now;
  return at_work_ = now - worked_ < kQuiet;
}

std::string LeftRunning::names() const {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> named;
  for (const auto& [pid, name] : names_) {
    if (named.size() < kMost) named.push_back(fmt::format("{} ({})", name, pid));
  }
  if (names_.size() > kMost) named.push_back(fmt::format("{} more", names_.size() - kMost));
  return fmt::format("{}", fmt::join(named, ", "));
}

std::vector<std::string> LeftRunning::told(const std::vector<int>& judged) const {
  const auto is_judged = [&](pid_t pid) {
    return std::find(judged.begin(), judged.end(), pid) != judged.end();
  };
  std::vector<std::string> sentences;
  for (const Failed& one : failed_) {
    if (is_judged(one.pid)) continue;
    sentences.push_back(
        fmt::format("{} ({}), which the command left running, ended with status {} and used no GPU",
                    one.name, one.pid, one.status));
  }
  for (const auto& [pid, name] : names_) {
    if (is_judged(pid)) continue;
    sentences.push_back(fmt::format(
        "{} ({}), which the command left running, had used no GPU when nothing more came of it",
        name, pid));
  }
  return sentences;
}

std::string waiting_for(const std::string& command, const std::string& names) {
  return fmt::format(
      "{}: the command has ended; what it left running is waited for (^C: no longer): {}", command,
      names);
}

void tell_of_left(nlohmann::json& rows, const LeftRunning& left) {
  std::vector<int> judged;
  for (const nlohmann::json& row : rows) {
    if (row["pid"].is_number()) judged.push_back(row["pid"].get<int>());
  }
  for (const std::string& sentence : left.told(judged)) {
    if (judged.empty()) {
      rows[0]["reason"] = rows[0]["reason"].get<std::string>() + "; " + sentence;
    } else {
      rows[0]["notes"].push_back(sentence);
    }
  }
}

}  // namespace gapless::tools
