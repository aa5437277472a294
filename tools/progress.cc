#include "tools/progress.h"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

#include "tools/say.h"
#include "tools/text_width.h"

namespace gapless::tools {

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
  const std::size_t columns = std::max<std::size_t>(2, terminal_columns(STDERR_FILENO));
  say(stderr, "\r\x1b[K{}", lines_of(text, columns - 1).front());
  std::fflush(stderr);
}

void Progress::show(const std::string& what, double fraction) {
  if (!is_due()) return;
  constexpr int kWidth = 24;
  const int full = static_cast<int>(fraction * kWidth);
  say(stderr, "\r\x1b[K{:<40} [{:#<{}}{:.<{}}] {:3.0f} %", what, "", full, "", kWidth - full,
      fraction * 100);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace gapless::tools
