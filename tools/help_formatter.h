// How `--help` looks: in the columns of the terminal, and with one line for each command.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "tools/text_width.h"

namespace gapless::tools {

class HelpFormatter : public CLI::Formatter {
 public:
  [[nodiscard]] std::string make_option(const CLI::Option* option,
                                        bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option),
                 make_option_desc(option));
  }
  [[nodiscard]] std::string make_description(const CLI::App* command) const override {
    std::string text;
    for (const std::string& line : lines_of(command->get_description(), columns())) {
      text += line + "\n";
    }
    return text;
  }
  [[nodiscard]] std::string make_subcommand(const CLI::App* command) const override {
    // Its first sentence.
    const std::string text = command->get_description();
    const std::size_t end =
        std::min({text.find(". "), text.find(".\n"), text.find(":\n"), text.find("? ")});
    return entry(command->get_name(), text.substr(0, end));
  }

 private:
  static std::size_t columns() {
    const std::size_t columns = terminal_columns(STDOUT_FILENO);
    return columns == 0 ? 100 : columns;
  }
  // "  --name TEXT    what it is, in as many lines as it takes"
  static std::string entry(const std::string& name, std::string text) {
    constexpr std::size_t kNames = 26;
    std::replace(text.begin(), text.end(), '\n', ' ');
    const std::size_t room = std::max(columns(), 2 * kNames) - kNames;
    const std::string next_line = "\n" + std::string(kNames, ' ');
    std::string out = "  " + name;
    std::string before =
        out.size() + 2 > kNames ? next_line : std::string(kNames - out.size(), ' ');
    for (const std::string& line : lines_of(text, room)) {
      out += std::exchange(before, next_line) + line;
    }
    return out + "\n";
  }
};

}  // namespace gapless::tools
