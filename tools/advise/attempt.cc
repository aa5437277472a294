#include "tools/advise/attempt.h"

#include <fmt/format.h>

#include "allocator/base/files.h"

namespace gapless::tools {

namespace fs = std::filesystem;

std::vector<std::string> command_of(const Attempt& attempt, const fs::path& folder) {
  std::vector<std::string> words = attempt.command;
  std::size_t number = 0;
  for (const auto& [path, text] : attempt.files) {
    // Each in a folder of its own: two may have the same name.
    const fs::path copy = folder / std::to_string(number++) / fs::path(path).filename();
    fs::create_directories(copy.parent_path());
    write_file(copy, text);
    for (std::string& word : words) {
      if (word == path) {
        word = copy;
      } else if (word.size() > path.size() && word.ends_with("=" + path)) {
        word = word.substr(0, word.size() - path.size()) + copy.string();
      }
    }
  }
  return words;
}

Variables variables_of(const Attempt& attempt) {
  Variables variables = attempt.variables;
  if (!attempt.hooks.empty()) {
    variables.emplace_back("SIMGPU_CHANGE", fmt::format("{}", fmt::join(attempt.hooks, ",")));
  }
  return variables;
}

std::string shell_text(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789@%_-+=:,./") == std::string::npos;
    if (!text.empty()) text += ' ';
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace gapless::tools
