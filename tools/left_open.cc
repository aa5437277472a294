#include "tools/left_open.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "allocator/base/bytes.h"
#include "simgpu/verdict.h"
#include "tools/cards_of_size.h"
#include "tools/estimates_from.h"
#include "tools/json_values.h"
#include "tools/lacking_kernels.h"
#include "tools/older_gpu.h"
#include "tools/same_program.h"

namespace gapless::tools {
namespace {

// Of a GPU, at the peak of a row that fits.
struct Room {
  std::uint64_t left_bytes;
  std::uint64_t own_left_bytes;  // of what the program allows itself, too
  std::uint64_t context_bytes;   // what context and libraries are taken to have
};

std::optional<Room> room_of(const nlohmann::json& row) {
  if (member(row, "fits") != true || !member(row, "peak_reserved_bytes").is_number()) return {};
  const std::uint64_t total = number(member(row, "total_bytes"));
  const std::uint64_t used = number(member(row, "peak_used_bytes"));
  const std::uint64_t reserved = number(member(row, "peak_reserved_bytes"));
  if (used > total || reserved > used) return {};
  const std::uint64_t left = total - used;
  const nlohmann::json limit = member(row, "limit_bytes");
  const std::uint64_t most = limit.is_number() ? number(limit) : total;
  return Room{left, std::min(left, most - std::min(most, reserved)), used - reserved};
}

// Whether it is told, or known, what the loaders' largest batch was: then it is no matter of
// chance.
bool loaders_explain(const nlohmann::json& loaders) {
  return std::any_of(loaders.begin(), loaders.end(), [](const nlohmann::json& loader) {
    const nlohmann::json& larger = member(loader, "may_be_larger");
    const bool of_the_longest = larger == false && member(loader, "one_size") != true;
    return larger == true || of_the_longest;
  });
}

}  // namespace

std::string tight_note(const nlohmann::json& row) {
  const std::optional<Room> room = room_of(row);
  if (!room || room->left_bytes >= room->context_bytes) return {};
  return fmt::format(
      "less is left than the {} that context and libraries are taken to have: what they have of a "
      "real GPU differs by its driver, and with more it may not fit (--context)",
      format_bytes(room->context_bytes));
}

std::string collectives_note(const nlohmann::json& row) {
  // Of a communicator that reduced (https://github.com/NVIDIA/nccl/issues/864).
  constexpr std::uint64_t reported = 1'600'000'000;
  const std::optional<Room> room = room_of(row);
  // Who gave them room with --context knows.
  if (!room || room->left_bytes >= reported || room->context_bytes >= reported) return {};
  const nlohmann::json& unknown = member(row, "unknown_workspaces");
  if (std::find(unknown.begin(), unknown.end(), "libnccl.so.2") == unknown.end()) return {};
  return "less is left than NCCL may take for buffers of its own, which are not counted: up to 1.6 "
         "GB were reported for a communicator. Leave room for them (--context 2GiB has some)";
}

std::string ended_note(const nlohmann::json& row) {
  const nlohmann::json& end = member(row, "end");
  if (member(row, "fits") != true || member(end, "how") != "stopped") return {};
  return fmt::format("the program itself ended it, by {}: what it had still to do, it did not",
                     member(end, "signal").get<std::string>());
}

std::string no_step_note(const nlohmann::json& row) {
  if (member(row, "fits") != true || member(row, "made_optimizer") != true) return {};
  if (number(member(row, "steps")) != 0) return {};
  return "an optimizer was made, and took no step: what a step of training takes, nobody has seen "
         "(from a checkpoint of a finished training nothing is left to do)";
}

std::string one_step_note(const nlohmann::json& row) {
  if (member(row, "fits") != true || number(member(row, "steps")) != 1) return {};
  const std::uint64_t states = number(member(row, "state_bytes_of_first_step"));
  if (states == 0 || !member(row, "stopped_after_steps").is_null()) return {};
  const std::optional<Room> room = room_of(row);
  return fmt::format(
      "it took one step, at whose end the optimizer made its states of {}: a second one has these "
      "beside what the first took{}. Two steps would show it",
      format_bytes(states),
      room && room->own_left_bytes < states
          ? fmt::format(", and no more than {} are left", format_bytes(room->own_left_bytes))
          : "");
}

std::string growth_note(const nlohmann::json& row) {
  const nlohmann::json& told = member(row, "growth");
  if (member(row, "fits") != true || !told.is_object()) return {};
  const simgpu::Growth growth = {number(told["steps"]), number(told["bytes"]),
                                 number(told["left_bytes"])};
  return growth.matters() ? growth.text() : "";
}

std::string steps_note(const nlohmann::json& row) {
  const nlohmann::json& peaks = member(row, "step_peaks");
  const std::optional<Room> room = room_of(row);
  if (!room || member(peaks, "differ") != true || loaders_explain(member(row, "data"))) return {};
  const std::uint64_t least = number(peaks["least_bytes"]);
  const std::uint64_t most = number(peaks["most_bytes"]);
  const std::uint64_t total = number(member(row, "total_bytes"));
  const nlohmann::json limit = member(row, "limit_bytes");
  const std::uint64_t own = limit.is_number() ? number(limit) : total;
  const std::uint64_t left =
      std::min(total - std::min(total, room->context_bytes + most), own - std::min(own, most));
  if (left >= most - least || !growth_note(row).empty()) return {};
  return fmt::format(
      "steps differ: {} of them took {} to {} at their peaks, the most in one alone, and {} are "
      "free "
      "beside that: a larger one that does not fit may come. The largest batch that there can be "
      "would show it",
      number(peaks["steps"]), format_bytes(least), format_bytes(most), format_bytes(left));
}

std::string limit_note(const nlohmann::json& row) {
  const std::optional<Room> room = room_of(row);
  if (!room || room->own_left_bytes >= room->left_bytes) return {};
  return fmt::format(
      "the program allows itself {} of the GPU's {} (memory fraction): {} of that are left",
      format_bytes(number(member(row, "limit_bytes"))),
      format_bytes(number(member(row, "total_bytes"))), format_bytes(room->own_left_bytes));
}

std::string offloaded_note(const nlohmann::json& row) {
  const std::uint64_t offloaded = number(member(row, "offloaded_parameter_bytes"));
  if (member(row, "fits") != true || offloaded == 0) return {};
  return fmt::format(
      "{} of parameters stay on the host, and are copied to the GPU in each pass (accelerate's "
      "device_map or offload): it fits so, and is slower",
      format_bytes(offloaded));
}

std::string not_simulated_note(const nlohmann::json& row) {
  if (member(row, "fits") != true) return {};
  std::vector<std::string> functions;  // but NVML's, which take no memory
  for (const nlohmann::json& what : member(row, "not_simulated")) {
    const std::string name = what.is_string() ? what.get<std::string>() : "";
    if (!name.empty() && !name.starts_with("nvml")) functions.push_back(name);
  }
  if (functions.empty()) return {};
  return fmt::format(
      "it asked for what is not simulated, was told so, and went on without: {}. On a real GPU it "
      "may take more",
      fmt::join(functions, ", "));
}

std::string assert_note(const nlohmann::json& row) {
  const nlohmann::json lines = member(row, "assert_passed_over");
  if (member(row, "fits") != true || !lines.is_object()) return {};
  return fmt::format(
      "an assert failed{} after numbers that nobody knows had been read; it was "
      "taken for one that holds",
      lines_text(lines));
}

std::vector<std::string> left_open(const nlohmann::json& row) {
  std::vector<std::string> notes;
  for (const std::string& note :
       {ended_note(row), no_step_note(row), one_step_note(row), growth_note(row), steps_note(row),
        limit_note(row), offloaded_note(row), tight_note(row), collectives_note(row),
        not_simulated_note(row), assert_note(row), lacking_kernels_note(row), older_gpu_note(row),
        smaller_cards_note(row), shared_memory_note(row), found_kernels_note(row)}) {
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

}  // namespace gapless::tools
