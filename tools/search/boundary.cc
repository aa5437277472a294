#include "tools/search/boundary.h"

#include <algorithm>
#include <utility>

namespace gapless::tools {
namespace {

// With so many results an estimate that has not led to the answer is no help: from then on each
// probe halves what is left.
constexpr std::size_t kEstimates = 6;
// Below what fails though it was expected to fit, the next is tried this much lower: fragmentation
// mostly costs less.
constexpr double kLower = 7.0 / 8;

}  // namespace

Boundary::Boundary(std::vector<double> values)
    : values_(std::move(values)), results_(values_.size(), Probed::untried) {}

void Boundary::learn(std::size_t setting, Probed result) {
  if (results_[setting] != Probed::untried || result == Probed::untried) return;
  results_[setting] = result;
  ++tried_;
  if (result == Probed::not_known) ++not_known_;
}

Boundary::Index Boundary::low() const {
  Index at = static_cast<Index>(results_.size()) - 1;
  while (at >= 0 && results_[at] != Probed::fits) --at;
  return at;
}

Boundary::Index Boundary::high() const {
  const auto begin = results_.begin() + low() + 1;
  return std::find_if(
             begin, results_.end(),
             [](Probed result) { return result == Probed::fails || result == Probed::in_doubt; }) -
         results_.begin();
}

bool Boundary::matters(std::size_t setting) const {
  const auto at = static_cast<Index>(setting);
  return !gave_up() && results_[setting] == Probed::untried && at > low() && at < high();
}

std::optional<std::size_t> Boundary::best() const {
  const Index at = low();
  return at < 0 ? std::nullopt : std::optional<std::size_t>(at);
}

std::optional<std::size_t> Boundary::ends_at() const {
  const Index at = high();
  return at == static_cast<Index>(results_.size()) ? std::nullopt : std::optional<std::size_t>(at);
}

std::optional<std::size_t> Boundary::ends_with(Probed result) const {
  const auto at = ends_at();
  return at && results_[*at] == result ? at : std::nullopt;
}

std::optional<std::size_t> Boundary::fails_at() const { return ends_with(Probed::fails); }

std::optional<std::size_t> Boundary::in_doubt_at() const { return ends_with(Probed::in_doubt); }

bool Boundary::closed() const {
  return std::none_of(results_.begin() + low() + 1, results_.begin() + high(),
                      [](Probed result) { return result == Probed::untried; });
}

bool Boundary::proven() const { return high() == low() + 1 && !in_doubt_at(); }

std::vector<std::size_t> Boundary::failures_below_best() const {
  std::vector<std::size_t> failures;
  for (Index at = 0; at < low(); ++at) {
    if (results_[at] == Probed::fails) failures.push_back(at);
  }
  return failures;
}

// The last setting of at most so many times the value of that one; the next one at least.
Boundary::Index Boundary::grown(Index from, double factor) const {
  const auto after = std::upper_bound(values_.begin(), values_.end(), values_[from] * factor);
  return std::max(from + 1, static_cast<Index>(after - values_.begin()) - 1);
}

// Where in what is between them the answer is likeliest; it need not be untried.
Boundary::Index Boundary::target(Index low, Index high, std::optional<Index> estimate) const {
  const Index middle = low + (high - low) / 2;
  const bool open = high == static_cast<Index>(results_.size());
  if (open) {
    if (low < 0 && !estimate) return 0;
    const Index doubled = low < 0 ? 0 : grown(low, 2);
    if (!estimate) return doubled;
    // What fits against the estimate is followed upwards in growing steps.
    const Index next = *estimate > low ? *estimate : low + std::max<Index>(1, low - *estimate);
    return tried_ < kEstimates ? next : std::max(next, doubled);
  }
  if (!estimate || tried_ >= kEstimates) return middle;
  if (*estimate < high) return std::max(*estimate, low + 1);
  const auto lower =
      std::upper_bound(values_.begin(), values_.begin() + high, values_[high] * kLower);
  const Index below = std::min(high - 1, static_cast<Index>(lower - values_.begin()) - 1);
  return below > low ? below : middle;
}

// The untried setting between those two that is nearest to the one that is wanted.
std::optional<std::size_t> Boundary::untried_near(Index wanted, Index low, Index high) const {
  if (high - low < 2) return {};
  wanted = std::clamp(wanted, low + 1, high - 1);
  for (Index away = 0; away < high - low; ++away) {
    for (const Index at : {wanted + away, wanted - away}) {
      if (at > low && at < high && results_[at] == Probed::untried) return at;
    }
  }
  return {};
}

std::vector<std::size_t> Boundary::above(Index failure, std::optional<Index> estimate) const {
  std::vector<std::size_t> wanted;
  std::size_t looked_at = 0;
  for (Index at = failure + 1; at < static_cast<Index>(results_.size()) && looked_at < kAbove;
       ++at) {
    if (results_[at] == Probed::not_known) continue;
    if (estimate && at > *estimate) break;
    ++looked_at;
    if (results_[at] == Probed::untried) wanted.push_back(at);
  }
  return wanted;
}

std::vector<std::size_t> Boundary::next(std::optional<std::ptrdiff_t> estimate, bool doubt) const {
  if (gave_up()) return {};
  const Index low = this->low();
  const Index high = this->high();
  const auto first = untried_near(target(low, high, estimate), low, high);
  if (!first) {
    if (high == static_cast<Index>(results_.size())) return {};
    return above(high, doubt ? std::nullopt : estimate);
  }
  std::vector<std::size_t> wanted = {*first};
  const auto add = [&](Index at) {
    if (const auto untried = untried_near(at, low, high);
        untried && std::find(wanted.begin(), wanted.end(), *untried) == wanted.end()) {
      wanted.push_back(*untried);
    }
  };
  const auto at = static_cast<Index>(*first);
  if (estimate && tried_ < kEstimates) {
    // The failure that would prove it, where the estimate is by more than one probe.
    if (at == *estimate && tried_ != 1) add(at + 1);
  } else if (high != static_cast<Index>(results_.size())) {
    add(at + (high - at) / 2);
    add(low + (at - low) / 2);
  }
  return wanted;
}

}  // namespace gapless::tools
