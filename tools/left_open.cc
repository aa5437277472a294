#include "tools/left_open.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/cards_of_size.h"
#include "tools/json_values.h"
#include "tools/older_gpu.h"
#include "tools/same_program.h"

namespace gapless::tools {
namespace {

// What is left on the GPU at the peak of a row that fits; none where that is not known.
std::optional<std::uint64_t> left_of(const nlohmann::json& row) {
  if (member(row, "fits") != true || !member(row, "peak_reserved_bytes").is_number()) return {};
  const std::uint64_t total = number(member(row, "total_bytes"));
  const std::uint64_t used = number(member(row, "peak_used_bytes"));
  if (used > total) return {};
  return total - used;
}

}  // namespace

std::string tight_note(const nlohmann::json& row) {
  const std::optional<std::uint64_t> left = left_of(row);
  const std::uint64_t used = number(member(row, "peak_used_bytes"));
  const std::uint64_t reserved = number(member(row, "peak_reserved_bytes"));
  if (!left || reserved > used || *left >= used - reserved) return {};
  return fmt::format(
      "less is left than the {} that context and libraries are taken to have: what they have of a "
      "real GPU differs by its driver, and with more it may not fit (--context)",
      format_bytes(used - reserved));
}

std::string collectives_note(const nlohmann::json& row) {
  // One communicator took 1.6 GB of each of eight GPUs (https://github.com/NVIDIA/nccl/issues/864);
  // over PCIe, with few channels, it is about 0.1 (issue 34).
  constexpr std::uint64_t most_reported = 1'600'000'000;
  const std::optional<std::uint64_t> left = left_of(row);
  const std::uint64_t context =
      number(member(row, "peak_used_bytes")) - number(member(row, "peak_reserved_bytes"));
  const nlohmann::json& unknown = member(row, "unknown_workspaces");
  // Who gave them room with --context knows.
  if (!left || *left >= most_reported || context >= most_reported || !unknown.is_array() ||
      std::find(unknown.begin(), unknown.end(), "libnccl.so.2") == unknown.end()) {
    return {};
  }
  return "less is left than NCCL may take for buffers of its own, which are not counted: 0.1 to "
         "1.6 GB of each GPU were reported for a communicator. Leave room for them (--context 2GiB "
         "has some)";
}

std::vector<std::string> left_open(const nlohmann::json& row) {
  std::vector<std::string> notes;
  for (const std::string& note : {tight_note(row), collectives_note(row), older_gpu_note(row),
                                  smaller_cards_note(row), found_kernels_note(row)}) {
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

}  // namespace gapless::tools
