#include "tools/cards_of_size.h"

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "simgpu/process/gpu_profile.h"
#include "tools/json_values.h"

namespace gapless::tools {

std::string smaller_cards_note(const nlohmann::json& row) {
  if (member(row, "is_named") != false || member(row, "fits") != true) return {};
  const std::uint64_t total = number(member(row, "total_bytes"));
  const std::uint64_t used = number(member(row, "peak_used_bytes"));
  std::string smaller;
  std::string first;
  for (const simgpu::Card& card : simgpu::cards_sold_with(total)) {
    if (card.total_bytes >= used) continue;
    if (first.empty()) first = card.name;
    smaller += fmt::format("{}{} {}", smaller.empty() ? "" : ", ", card.name,
                           format_bytes(card.total_bytes));
  }
  if (smaller.empty()) return {};
  return fmt::format(
      "{} were in use on a GPU of {}, and cards sold with that have less ({}): name the card "
      "(--gpu '{}')",
      format_bytes(used), format_bytes(total), smaller, first);
}

}  // namespace gapless::tools
