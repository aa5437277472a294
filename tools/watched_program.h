// A program that is run for its verdict: its output kept apart, its time limited, its progress
// looked at, and what it leaves running waited for (left_running.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch.h"
#include "tools/left_running.h"

namespace gapless::tools {

struct Watching {
  /// What it prints goes there, and it has no input; empty: it has ours.
  std::filesystem::path output;
  /// After so long it is interrupted, as by ^C, and ended where it does not end by itself.
  std::optional<std::chrono::milliseconds> limit;
  /// Called a few times a second.
  std::function<void()> look;
  /// Called once where what it left running is waited for, with its names.
  std::function<void(const std::string&)> waits;
};

struct WatchedEnd {
  enum class By { itself, limit, user };
  Ended ended;
  By by = By::itself;  // who wanted it to end
};

/// Runs a program in a process group of its own and waits for it, and for what it leaves running,
/// which `left` ends. An interrupt (^C, SIGTERM, SIGHUP) of this one is passed on to it, and so `by
/// user`. Throws InputError where it cannot be started.
WatchedEnd run_watched(const std::vector<std::string>& command, const Variables& variables,
                       const Watching& watching, LeftRunning& left);

/// Waits for what a command that run_program() ran has left running; not where that was ended by a
/// signal, or the user wanted it to end, whatever it made of that.
WatchedEnd wait_for_left(LeftRunning& left, const Watching& watching, const Ended& ended);

}  // namespace gapless::tools
