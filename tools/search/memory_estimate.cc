#include "tools/search/memory_estimate.h"

#include <algorithm>
#include <iterator>

namespace gapless::tools {
namespace {

// From one probe nobody can tell what the program takes anyway, so the answer may be far above what
// is in proportion, and also far below it. A step is no larger than this.
constexpr double kLargestStep = 16;

}  // namespace

void MemoryEstimate::fitted(double setting, double share) {
  double& known = points_[setting];
  known = std::max(known, share);
}

void MemoryEstimate::wanted(double setting, double share) {
  if (share > 1) hopeless_[setting] = share;
}

double MemoryEstimate::share(double setting) const {
  const auto above = points_.lower_bound(setting);
  if (above != points_.end() && (above->first == setting || above == points_.begin())) {
    return above->second;
  }
  if (points_.size() == 1) {
    const auto& [at, share] = *points_.begin();
    return at > 0 && setting <= at * kLargestStep ? share * setting / at : 2;
  }
  const auto high = above == points_.end() ? std::prev(above) : above;
  const auto low = std::prev(high);
  const double slope = (high->second - low->second) / (high->first - low->first);
  return high->second +
         (setting - high->first) * (above == points_.end() ? std::max(0.0, slope) : slope);
}

std::optional<std::ptrdiff_t> MemoryEstimate::largest(const std::vector<double>& settings) const {
  if (empty()) return {};
  auto end = settings.end();
  if (!hopeless_.empty()) {
    end = std::lower_bound(settings.begin(), end, hopeless_.begin()->first);
  }
  auto at = end - settings.begin();
  if (points_.empty()) return at == 0 ? std::optional<std::ptrdiff_t>(-1) : std::nullopt;
  while (at > 0 && share(settings[at - 1]) > 1) --at;
  return at - 1;
}

}  // namespace gapless::tools
