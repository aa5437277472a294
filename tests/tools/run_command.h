// The gapless command as a user runs it, in a shell.
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <sys/wait.h>

namespace gapless::testing {

struct Output {
  int status = -1;   // 128 + the signal that ended it
  std::string text;  // standard output and error together, but for what the arguments redirect
};

/// `errors`: where standard error goes.
inline Output run(const std::string& arguments, const std::string& errors = "2>&1") {
  Output output;
  FILE* pipe = popen((std::string(GAPLESS_COMMAND) + " " + arguments + " " + errors).c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.text.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

/// Any bytes as one word of a shell.
inline std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace gapless::testing
