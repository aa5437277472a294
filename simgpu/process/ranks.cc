#include "simgpu/process/ranks.h"

#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace gapless::simgpu {
namespace {

constexpr int kMostRanks = 1 << 20;

std::optional<int> rank_number(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return {};
  if (text.size() > 7) return {};
  const int number = std::atoi(text.c_str());
  if (number >= kMostRanks) return {};
  return number;
}

}  // namespace

Ranks::Ranks(const std::string& text) {
  if (!text.empty() && text.back() == ',') {
    throw std::invalid_argument("\"" + text + "\" ends with a comma");
  }
  std::stringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t dash = word.find('-');
    const auto first = rank_number(word.substr(0, dash));
    const auto last = dash == std::string::npos ? first : rank_number(word.substr(dash + 1));
    if (!first || !last || *last < *first) {
      throw std::invalid_argument("\"" + word + "\" is no rank: write them as 0, as 0,7 or as 0-3");
    }
    for (int rank = *first; rank <= *last; ++rank) listed_.insert(rank);
  }
}

const Ranks& ranks_from_environment() {
  static const Ranks& ranks = *[] {
    const char* const text = std::getenv("SIMGPU_RANKS");
    try {
      return new Ranks(text == nullptr ? "" : text);
    } catch (const std::invalid_argument&) {
      return new Ranks();  // the command has checked it
    }
  }();
  return ranks;
}

int rank_variable(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return -1;
  return rank_number(text).value_or(-1);
}

}  // namespace gapless::simgpu
