// A progress bar on standard error, where that is a terminal; nothing elsewhere.
//
//   qwen-lora-varlen  native      [##########..........]  50 %
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace gapless::tools {

/// "qwen-lora  native   [######......]  50 %", or as much of it as stands in one line of so many
/// columns (0: any): the end of what it is of, and where there is no room for the bar, no bar.
std::string progress_line(const std::string& what, double fraction, std::size_t columns);

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `what` with a fraction from 0 to 1; redrawn at most ten times a second.
  void show(const std::string& what, double fraction);
  /// Shows a text alone, where nobody knows how much there is to do.
  void show_line(const std::string& text);
  /// Removes it, so that other text can be printed.
  void clear();

 private:
  [[nodiscard]] bool is_due();

  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace gapless::tools
