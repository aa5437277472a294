// Boundary: the largest of a row of settings that fits, found with few probes and proven by two.
//
//   setting     1   2   3   4   5   6   7   8   9  10
//   probed      fits                fits        no       ...
//                                   ^ best  ^ next       an answer when the setting after the
//                                                        best has failed, too
//
// What is known so far decides what is tried next, so it does not matter where it comes from: a
// probe that has just ended, one of a search that was broken off, one that was tried beside another
// in case it is wanted. An estimate of the answer saves probes; it never is the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gapless::tools {

/// `in_doubt`: another run may fit, or not, by when Python's garbage collector comes. An answer is
/// below it, as below a failure. `not_known`: the program failed, and not for lack of memory. Such
/// a setting says nothing about its neighbours, and is left out.
enum class Probed : std::uint8_t { untried, fits, fails, in_doubt, not_known };

class Boundary {
 public:
  /// Memory need not rise with the setting: so many settings above the first that fails are tried
  /// as well, where the estimate does not rule them out.
  static constexpr std::size_t kAbove = 2;
  /// A program that fails so often for another reason is asked no more.
  static constexpr std::size_t kGivesUp = 3;

  /// Of settings with these numbers, ascending.
  explicit Boundary(std::vector<double> values);

  void learn(std::size_t setting, Probed result);

  /// Which settings to try next: the first is needed, those after it are likely to be. Empty when
  /// there is no more to be learnt. `estimate`: the largest setting that is expected to fit, -1
  /// where none is. `doubt`: settings above a failure are tried even where it rules them out.
  [[nodiscard]] std::vector<std::size_t> next(std::optional<std::ptrdiff_t> estimate,
                                              bool doubt = false) const;

  /// Whether a result of that setting may still lead to the answer.
  [[nodiscard]] bool matters(std::size_t setting) const;

  /// The largest that is known to fit, and the first above it that is known not to, or is in doubt.
  [[nodiscard]] std::optional<std::size_t> best() const;
  [[nodiscard]] std::optional<std::size_t> ends_at() const;
  /// That one, where it is the one or the other.
  [[nodiscard]] std::optional<std::size_t> fails_at() const;
  [[nodiscard]] std::optional<std::size_t> in_doubt_at() const;
  /// Whether every setting between those two (or above the best) has a result.
  [[nodiscard]] bool closed() const;
  /// Whether there is none between them, and the latter fails: nothing is left that could fit.
  [[nodiscard]] bool proven() const;
  /// Those that fail though a larger one fits, ascending.
  [[nodiscard]] std::vector<std::size_t> failures_below_best() const;
  [[nodiscard]] bool gave_up() const { return not_known_ >= kGivesUp; }

  [[nodiscard]] Probed result(std::size_t setting) const { return results_[setting]; }
  [[nodiscard]] const std::vector<double>& values() const { return values_; }
  [[nodiscard]] std::size_t tried() const { return tried_; }

 private:
  using Index = std::ptrdiff_t;
  [[nodiscard]] Index low() const;   // the best; -1 where there is none
  [[nodiscard]] Index high() const;  // ends_at(); the count where there is none
  [[nodiscard]] std::optional<std::size_t> ends_with(Probed result) const;
  [[nodiscard]] Index target(Index low, Index high, std::optional<Index> estimate) const;
  [[nodiscard]] Index grown(Index from, double factor) const;
  [[nodiscard]] std::optional<std::size_t> untried_near(Index wanted, Index low, Index high) const;
  [[nodiscard]] std::vector<std::size_t> above(Index failure, std::optional<Index> estimate) const;

  std::vector<double> values_;
  std::vector<Probed> results_;
  std::size_t tried_ = 0;
  std::size_t not_known_ = 0;
};

}  // namespace gapless::tools
