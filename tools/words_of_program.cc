#include "tools/words_of_program.h"

#include <algorithm>
#include <array>
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
        "front of the program, unless it is the program's own",
        value, gpus.gpus);
  }
  return {};
}

std::string out_of_reach_note(const std::string& who, const std::vector<std::string>& command) {
  constexpr std::array<std::string_view, 8> kStarters = {
      "apptainer", "docker", "kubectl", "nerdctl", "podman", "singularity", "ssh", "sudo"};
  if (command.empty()) return {};
  const std::string& first = command.front();
  const std::string name = first.substr(first.rfind('/') + 1);
  if (std::find(kStarters.begin(), kStarters.end(), name) == kStarters.end()) return {};
  return fmt::format(
      "{} starts the program where simulated GPUs do not reach: put gapless in front of the "
      "program there ({} ... {} -- python train.py)",
      name, name, who);
}

void tell_of_words(const std::string& who, const std::vector<std::string>& command,
                   const SimulatedGpus& gpus) {
  for (const std::string& note : {other_nodes_note(command), gpu_behind_program_note(command, gpus),
                                  out_of_reach_note(who, command)}) {
    if (!note.empty()) say(stderr, "{}: {}\n", who, note);
  }
}

}  // namespace gapless::tools
