// A program that is run for its verdict: its output kept apart, its time limited, its progress
// looked at, and all it leaves behind ended where it had to be stopped.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch.h"

namespace gapless::tools {

struct Watching {
  /// What it prints goes there, and it has no input; empty: it has ours.
  std::filesystem::path output;
  /// After so long it is interrupted, as by ^C, and ended where it does not end by itself.
  std::optional<std::chrono::milliseconds> limit;
  /// Called a few times a second.
  std::function<void()> look;
};

struct WatchedEnd {
  enum class By { itself, limit, user };
  Ended ended;
  By by = By::itself;  // who wanted it to end
};

/// Runs a program in a process group of its own and waits for it. An interrupt (^C, SIGTERM,
/// SIGHUP) of this one is passed on to it, and so `by user`. Throws InputError where it cannot be
/// started.
WatchedEnd run_watched(const std::vector<std::string>& command, const Variables& variables,
                       const Watching& watching);

}  // namespace gapless::tools
