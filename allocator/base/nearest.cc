#include "allocator/base/nearest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace gapless {
namespace {

bool same(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// Edits that turn one word into the other, by rows: what it takes for the first i and j letters.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before;  // i - 2, i - 1, i
  std::vector<std::size_t> above;
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::move(above);
    above = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t exchanged = above[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, exchanged});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known,
                         std::size_t most_edits) {
  std::string_view best;
  std::size_t least = SIZE_MAX;
  for (const std::string_view candidate : known) {
    const std::size_t edits = distance(word, candidate);
    if (edits >= least || edits > most_edits) continue;
    least = edits;
    best = candidate;
  }
  return best;
}

}  // namespace gapless
