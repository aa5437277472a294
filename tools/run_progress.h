// How far a watched run has come: a line on a terminal, renewed a few times a second, and a warning
// where the program may wait for ever (standstill.h).
//
//   gapless fits: with native: 12 s, 3 steps, 4.10 GiB in use at most
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "tools/standstill.h"

namespace gapless::tools {

/// "gapless fits: with native: 12 s, 3 steps, 4.00 GiB in use at most", or as much of it as stands
/// in one line of so many columns (0: any): one that is broken would not be written over.
std::string status_line(const std::string& what, const std::string& figures, std::size_t columns);

class RunProgress {
 public:
  /// `reports`: the folder where the run's processes leave what they come to. `alone`: nothing else
  /// is printed meanwhile, so that there can be a line; `zeros`: unknown numbers are zeros.
  RunProgress(std::string what, std::filesystem::path reports, bool alone, bool zeros);
  ~RunProgress();
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  void look();
  /// Tells once what the command left running, which is waited for.
  void wait_for(const std::string& names);

 private:
  [[nodiscard]] CameTo came_to() const;
  void clear();

  std::string what_;
  std::filesystem::path reports_;
  bool shown_;
  bool zeros_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point begin_;
  Standstill standstill_;
};

}  // namespace gapless::tools
