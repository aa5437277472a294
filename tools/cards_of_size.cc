#include "tools/cards_of_size.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::string shared_memory_note(const nlohmann::json& row) {
  if (member(row, "is_named") != false || member(row, "fits") != true) return {};
  const std::uint64_t shared = number(member(row, "shared_per_block_bytes"));
  std::vector<simgpu::Card> cards = simgpu::cards_sold_with(number(member(row, "total_bytes")));
  if (cards.empty()) cards = simgpu::known_cards();  // it may be a relative of any
  std::erase_if(cards,
                [&](const simgpu::Card& card) { return card.shared_per_block_bytes >= shared; });
  if (cards.empty()) return {};
  constexpr std::size_t kMostNames = 4;
  std::vector<std::string> names;
  for (const simgpu::Card& card : cards) {
    if (names.size() < kMostNames) names.push_back(card.name);
  }
  const std::string first = names.front();
  if (cards.size() > kMostNames) {
    names.push_back(fmt::format("{} others", cards.size() - kMostNames));
  }
  return fmt::format(
      "a kernel was launched with {} of shared memory a block, and {} {} less: there it fails, "
      "where the program does not choose another by the GPU; name the card (--gpu '{}')",
      format_bytes(shared), fmt::join(names, ", "), names.size() == 1 ? "has" : "have", first);
}

}  // namespace gapless::tools
