#include "tools/progress.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "allocator/base/terminal_text.h"
#include "tools/text_width.h"

namespace gapless::tools {

std::string progress_line(const std::string& what, double fraction, std::size_t columns) {
  constexpr std::size_t kName = 40;
  constexpr std::size_t kLeastName = 16;
  constexpr int kWidth = 24;
  const int full = static_cast<int>(fraction * kWidth);
  const std::string percent = fmt::format(" {:3.0f} %", fraction * 100);
  const std::string bar = fmt::format(" [{:#<{}}{:.<{}}]", "", full, "", kWidth - full);
  // The last column stays free: some terminals go to the next line once it is taken.
  const std::size_t room = columns == 0 ? SIZE_MAX : std::max<std::size_t>(columns, 8) - 1;
  const bool with_bar = room >= kLeastName + bar.size() + percent.size();
  const std::string after = with_bar ? bar + percent : percent;
  const std::size_t most = room - std::min(room, after.size());
  const std::string name = last_columns(what, most);
  return padded(name, with_bar ? std::min(kName, most) : 0, /*in_front=*/false) + after;
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}
Progress::~Progress() { clear(); }

bool Progress::is_due() {
  if (!terminal_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return false;
  last_ = now;
  drawn_ = true;
  return true;
}

void Progress::show_line(const std::string& text) {
  if (!is_due()) return;
  const std::size_t columns = terminal_columns(STDERR_FILENO);
  const std::string safe = terminal_text(text);
  fmt::print(stderr, "\r\x1b[K{}",
             columns == 0 ? safe : lines_of(safe, std::max<std::size_t>(2, columns) - 1).front());
  std::fflush(stderr);
}

void Progress::show(const std::string& what, double fraction) {
  if (!is_due()) return;
  fmt::print(stderr, "\r\x1b[K{}",
             progress_line(terminal_text(what), fraction, terminal_columns(STDERR_FILENO)));
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace gapless::tools
