#include "tools/torch_settings.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/json_values.h"
#include "tools/say.h"

namespace gapless::tools {
namespace {

constexpr const char* kName = "PYTORCH_CUDA_ALLOC_CONF";
constexpr const char* kOtherName = "PYTORCH_ALLOC_CONF";
constexpr const char* kNoCaching = "PYTORCH_NO_CUDA_MEMORY_CACHING";

// At commas, but for those of lists: "roundup_power2_divisions:[256:1,512:2],backend:native".
std::vector<std::string> words_of(std::string_view set) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char c : set) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == ',' && depth == 0) {
      words.emplace_back();
    } else if (c != ' ') {
      words.back() += c;
    }
  }
  std::erase(words, "");
  return words;
}

bool chooses_allocator(const std::string& word) {
  return word.starts_with("expandable_segments:") || word.starts_with("backend:");
}

}  // namespace

std::string torch_settings_for(const std::string& allocator, std::string_view set) {
  if (allocator == "gapless") return std::string(set);
  if (allocator == "async") return "backend:cudaMallocAsync";
  std::vector<std::string> words = words_of(set);
  const bool chose = std::erase_if(words, chooses_allocator) != 0;
  if (allocator == "expandable") {
    words.emplace_back("expandable_segments:True");
  } else if (chose) {
    words.emplace_back("expandable_segments:False");
  }
  return fmt::format("{}", fmt::join(words, ","));
}

std::string torch_settings_set() {
  for (const char* const name : {kName, kOtherName}) {
    if (const char* const set = std::getenv(name); set != nullptr) return set;
  }
  return {};
}

std::string replaced_settings_note(const nlohmann::json& row) {
  const nlohmann::json replaced = member(row, "replaced_settings");
  if (!replaced.is_string()) return {};
  const auto set = replaced.get<std::string>();
  return fmt::format(
      "the program {} itself: whether segments expand went by the allocator that was "
      "asked for ({})",
      set.empty() ? "chooses settings of torch's allocator" : "sets PYTORCH_CUDA_ALLOC_CONF=" + set,
      row["allocator"].get<std::string>());
}

void leave_out_torch_settings(const std::string& command,
                              const std::vector<std::string>& allocators) {
  if (std::getenv(kNoCaching) != nullptr) {
    say(stderr, "gapless {}: {} is left out: torch has no allocator with it\n", command,
        kNoCaching);
    unsetenv(kNoCaching);
  }
  const char* const name = std::getenv(kName) != nullptr ? kName : kOtherName;
  for (const std::string& word : words_of(torch_settings_set())) {
    if (!chooses_allocator(word)) continue;
    std::vector<std::string> without;
    for (const std::string& allocator : allocators) {
      const std::vector<std::string> kept =
          words_of(torch_settings_for(allocator, torch_settings_set()));
      if (std::find(kept.begin(), kept.end(), word) == kept.end()) without.push_back(allocator);
    }
    if (without.empty()) continue;
    say(stderr, "gapless {}: with {}, {} of {} is left out\n", command,
        fmt::format("{}", fmt::join(without, " and ")), word, name);
  }
}

}  // namespace gapless::tools
