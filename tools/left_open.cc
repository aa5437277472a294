#include "tools/left_open.h"

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/cards_of_size.h"
#include "tools/json_values.h"
#include "tools/older_gpu.h"
#include "tools/same_program.h"

namespace gapless::tools {

std::string tight_note(const nlohmann::json& row) {
  if (member(row, "fits") != true || !member(row, "peak_reserved_bytes").is_number()) return {};
  const std::uint64_t total = number(member(row, "total_bytes"));
  const std::uint64_t used = number(member(row, "peak_used_bytes"));
  const std::uint64_t reserved = number(member(row, "peak_reserved_bytes"));
  if (used > total || reserved > used || total - used >= used - reserved) return {};
  return fmt::format(
      "less is left than the {} that context and libraries are taken to have: what they have of a "
      "real GPU differs by its driver, and with more it may not fit (--context)",
      format_bytes(used - reserved));
}

std::vector<std::string> left_open(const nlohmann::json& row) {
  std::vector<std::string> notes;
  for (const std::string& note :
       {tight_note(row), older_gpu_note(row), smaller_cards_note(row), found_kernels_note(row)}) {
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

}  // namespace gapless::tools
