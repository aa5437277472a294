#include "tools/words_of_program.h"

#include <cstdio>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "simgpu/process/gpu_profile.h"
#include "tools/other_nodes.h"
#include "tools/say.h"

namespace gapless::tools {
namespace {

bool names_gpus(const std::string& text) {
  try {
    return !simgpu::parse_gpus(text).empty();
  } catch (const std::invalid_argument&) {
    return false;
  }
}

}  // namespace

std::string gpu_behind_program_note(const std::vector<std::string>& command,
                                    const SimulatedGpus& gpus) {
  constexpr std::string_view kWithValue = "--gpu=";
  if (gpus.gpus != SimulatedGpus().gpus) return {};
  for (std::size_t i = 0; i < command.size(); ++i) {
    std::string value;
    if (command[i] == "--gpu" && i + 1 < command.size()) value = command[i + 1];
    if (command[i].starts_with(kWithValue)) value = command[i].substr(kWithValue.size());
    if (!names_gpus(value)) continue;
    return fmt::format(
        "--gpu {} stands behind the program, which gets it, and an {} is simulated: put it in "
        "front "
        "of the program, unless it is the program's own",
        value, gpus.gpus);
  }
  return {};
}

void tell_of_words(const std::string& who, const std::vector<std::string>& command,
                   const SimulatedGpus& gpus) {
  for (const std::string& note :
       {other_nodes_note(command), gpu_behind_program_note(command, gpus)}) {
    if (!note.empty()) say(stderr, "{}: {}\n", who, note);
  }
}

}  // namespace gapless::tools
