#include "tools/other_nodes.h"

#include <filesystem>
#include <iterator>
#include <regex>

#include <fmt/format.h>

#include "allocator/base/text_of_file.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

// torchrun's, accelerate's, DeepSpeed's and Lightning's.
const std::regex& nodes_option() {
  static const std::regex option(
      "(^|\\s)--(nnodes|num_machines|num-machines|num_nodes|num-nodes)[=\\s]+(\\d{1,6})(?![\\d:])");
  return option;
}

// What a line of a script says before its comment.
std::string without_comments(const std::string& text) {
  static const std::regex comment("(^|\\s)#[^\\n]*");
  return std::regex_replace(text, comment, "");
}

std::string script_in(const std::string& word) {
  constexpr std::uintmax_t kMost = 1 << 20;
  std::error_code error;
  if (!word.ends_with(".sh") || fs::file_size(word, error) > kMost || error) return {};
  return without_comments(text_of_file(word));
}

}  // namespace

std::string other_nodes_note(const std::vector<std::string>& command) {
  std::string words;
  std::string scripts;
  for (const std::string& word : command) {
    words += word + ' ';
    scripts += script_in(word) + '\n';
  }
  for (const std::string& text : {words, scripts}) {
    std::smatch found;
    if (!std::regex_search(text, found, nodes_option()) || std::stol(found[3]) < 2) continue;
    // A script may start them all.
    const auto options = std::distance(
        std::sregex_iterator(text.begin(), text.end(), nodes_option()), std::sregex_iterator());
    if (options >= std::stol(found[3])) continue;
    return fmt::format(
        "--{} {}: it will wait for other machines, and there is only this one. Have all ranks "
        "here, one node with as many processes and --gpu with as many GPUs (--ranks runs some of "
        "them)",
        found[2].str(), found[3].str());
  }
  return {};
}

}  // namespace gapless::tools
