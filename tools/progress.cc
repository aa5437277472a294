#include "tools/progress.h"

#include <cstdio>

#include <unistd.h>

#include "tools/say.h"

namespace gapless::tools {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}
Progress::~Progress() { clear(); }

void Progress::show(const std::string& what, double fraction) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
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
