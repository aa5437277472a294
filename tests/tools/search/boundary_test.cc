// The strategy of a search, over programs that are functions.
#include "tools/search/boundary.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/search/memory_estimate.h"

namespace gapless::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Program = std::function<Probed(double)>;

std::vector<double> numbers(std::size_t count, double first = 1, double step = 1) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + step * static_cast<double>(i);
  return values;
}

Program fits_up_to(double most) {
  return [=](double value) { return value <= most ? Probed::fits : Probed::fails; };
}

struct Searched {
  Boundary boundary;
  std::size_t probes = 0;
};

// One probe after the other, each the first that is wanted.
Searched search(
    std::vector<double> values, const Program& program,
    const std::function<std::optional<std::ptrdiff_t>(const Boundary&)>& estimate =
        [](const Boundary&) { return std::nullopt; }) {
  Searched searched{Boundary(std::move(values))};
  Boundary& boundary = searched.boundary;
  for (auto next = boundary.next(estimate(boundary)); !next.empty();
       next = boundary.next(estimate(boundary))) {
    EXPECT_EQ(boundary.result(next.front()), Probed::untried);
    EXPECT_EQ(std::set<std::size_t>(next.begin(), next.end()).size(), next.size());
    boundary.learn(next.front(), program(boundary.values()[next.front()]));
    if (++searched.probes > boundary.values().size()) {
      ADD_FAILURE() << "it asks for ever";
      break;
    }
  }
  return searched;
}

double largest(const Boundary& boundary) {
  return boundary.best() ? boundary.values()[*boundary.best()] : 0;
}

TEST(Boundary, IsFoundAndProvenWhereverItIs) {
  for (const std::size_t count : {1, 2, 3, 7, 64, 1000}) {
    for (std::size_t most = 0; most <= count; most += count > 100 ? 37 : 1) {
      const auto [boundary, probes] = search(numbers(count), fits_up_to(static_cast<double>(most)));
      EXPECT_EQ(largest(boundary), static_cast<double>(most));
      EXPECT_TRUE(boundary.proven()) << most << " of " << count;
      EXPECT_EQ(boundary.fails_at().has_value(), most < count);
      EXPECT_EQ(boundary.fails_at().value_or(most), most);
      EXPECT_LE(probes, 2 * std::ceil(std::log2(count + 1)) + 1 + Boundary::kAbove);
    }
  }
}

TEST(Boundary, TakesFewProbesWhereTheEstimateIsRight) {
  for (const std::ptrdiff_t most : {0, 1, 20, 62, 63}) {
    const auto [boundary, probes] = search(numbers(64), fits_up_to(static_cast<double>(most) + 1),
                                           [&](const Boundary&) { return most; });
    EXPECT_EQ(largest(boundary), static_cast<double>(most) + 1);
    EXPECT_LE(probes, 2U);  // the answer, and the failure after it, where there is a setting
  }
}

// An estimate steers; whatever it says, the answer is the same, and it costs little.
TEST(Boundary, IsFoundWhateverTheEstimate) {
  for (std::ptrdiff_t most = 0; most <= 200; most += 7) {
    for (std::ptrdiff_t said = -1; said < 200; said += 9) {
      const auto [boundary, probes] = search(numbers(200), fits_up_to(static_cast<double>(most)),
                                             [&](const Boundary&) { return said; });
      EXPECT_EQ(largest(boundary), static_cast<double>(most)) << "estimate " << said;
      EXPECT_TRUE(boundary.proven());
      EXPECT_LE(probes, 22U) << most << ", estimate " << said;
    }
  }
}

TEST(Boundary, AsksForWhatWillBeWantedAsWell) {
  Boundary boundary(numbers(64));
  EXPECT_THAT(boundary.next({}), ElementsAre(0));
  boundary.learn(0, Probed::fits);
  EXPECT_THAT(boundary.next(7), ElementsAre(7));  // in proportion to one probe
  boundary.learn(7, Probed::fits);
  EXPECT_THAT(boundary.next(40), ElementsAre(40, 41));  // the answer, and its proof
  EXPECT_TRUE(boundary.matters(41));
  boundary.learn(41, Probed::fails);
  EXPECT_FALSE(boundary.matters(50));
  boundary.learn(40, Probed::fits);
  EXPECT_THAT(boundary.next(40), IsEmpty());
  Boundary halved(numbers(64));
  halved.learn(0, Probed::fits);
  halved.learn(63, Probed::fails);
  EXPECT_THAT(halved.next({}), ElementsAre(31, 47, 15));  // one of both will be next
}

TEST(Boundary, NothingFits) {
  const auto [boundary, probes] = search(numbers(100), fits_up_to(0));
  EXPECT_EQ(boundary.best(), std::nullopt);
  EXPECT_EQ(boundary.fails_at(), 0U);
  EXPECT_TRUE(boundary.proven());
  EXPECT_EQ(probes, 1 + Boundary::kAbove);  // the two above as well, for nobody knows
  // Where the smallest wants more than there is they are not asked.
  MemoryEstimate estimate;
  estimate.wanted(1, 1.5);
  EXPECT_EQ(estimate.largest(numbers(100)), -1);
  EXPECT_EQ(search(numbers(100), fits_up_to(0),
                   [&](const Boundary& known) {
                     return known.tried() == 0 ? std::nullopt : estimate.largest(known.values());
                   })
                .probes,
            1U);
}

TEST(Boundary, WhatFitsAboveAFailureIsFound) {
  // As where memory is rounded: 33 and 35 do not, 34 and 36 do.
  const Program odd = [](double value) {
    const bool fits = value <= 32 || value == 34 || value == 36;
    return fits ? Probed::fits : Probed::fails;
  };
  Boundary boundary(numbers(64));
  boundary.learn(31, Probed::fits);
  boundary.learn(32, Probed::fails);
  EXPECT_THAT(boundary.next({}), ElementsAre(33, 34));
  EXPECT_THAT(boundary.next(33), ElementsAre(33));  // 35 is expected to take more than there is
  for (auto next = boundary.next({}); !next.empty(); next = boundary.next({})) {
    boundary.learn(next.front(), odd(boundary.values()[next.front()]));
  }
  EXPECT_EQ(largest(boundary), 36);
  EXPECT_EQ(boundary.values()[*boundary.fails_at()], 37);
  EXPECT_THAT(boundary.failures_below_best(), ElementsAre(32, 34));
}

TEST(Boundary, WhatFailsForAnotherReasonIsLeftOut) {
  // Only even settings work.
  const Program even = [](double value) {
    if (std::fmod(value, 2) != 0 && value > 1) return Probed::not_known;
    return value <= 6 ? Probed::fits : Probed::fails;
  };
  const auto [boundary, probes] = search(numbers(8), even, [](const Boundary&) { return 5; });
  EXPECT_EQ(largest(boundary), 6);
  EXPECT_EQ(boundary.values()[*boundary.fails_at()], 8);
  EXPECT_TRUE(boundary.closed());
  EXPECT_FALSE(boundary.proven());  // nobody knows of 7
}

// Above ten another run may fit, or not, again and again: eleven ends the answer, and proves
// nothing.
TEST(Boundary, AnAnswerIsBelowWhatIsInDoubt) {
  const Program program = [](double value) {
    return value <= 10 ? Probed::fits : value <= 20 ? Probed::in_doubt : Probed::fails;
  };
  for (const std::optional<std::ptrdiff_t> estimate :
       {std::optional<std::ptrdiff_t>(), std::optional<std::ptrdiff_t>(15)}) {
    const auto [boundary, probes] =
        search(numbers(64), program, [&](const Boundary&) { return estimate; });
    EXPECT_EQ(largest(boundary), 10);
    EXPECT_EQ(boundary.values()[*boundary.in_doubt_at()], 11);
    EXPECT_EQ(boundary.fails_at(), std::nullopt);
    EXPECT_TRUE(boundary.closed());
    EXPECT_FALSE(boundary.proven());
    EXPECT_FALSE(boundary.gave_up());
  }
}

TEST(Boundary, AProgramThatFailsAgainAndAgainIsAskedNoMore) {
  const auto [boundary, probes] = search(
      numbers(1000), [](double value) { return value <= 10 ? Probed::fits : Probed::not_known; });
  EXPECT_TRUE(boundary.gave_up());
  EXPECT_FALSE(boundary.proven());
  EXPECT_LE(probes, 5 + Boundary::kGivesUp);
}

TEST(MemoryEstimate, GoesByWhatIsKnown) {
  const std::vector<double> settings = numbers(1000);
  MemoryEstimate estimate;
  EXPECT_EQ(estimate.largest(settings), std::nullopt);
  estimate.fitted(1, 0.125);
  EXPECT_EQ(estimate.largest(settings), 7);  // eight times as much
  estimate.fitted(8, 0.3);                   // 0.1 and 0.025 for each
  EXPECT_EQ(estimate.largest(settings), 35);
  estimate.fitted(32, 0.95);  // more than that
  EXPECT_EQ(estimate.largest(settings), 32);
  estimate.wanted(33, 1.01);
  EXPECT_EQ(estimate.largest(settings), 31);
}

TEST(MemoryEstimate, TakesNoGiantStepFromOneProbe) {
  MemoryEstimate estimate;
  estimate.fitted(2, 1e-6);
  EXPECT_EQ(estimate.largest(numbers(1000)), 31);  // 32 is sixteen times 2
}

// Memory that is affine in the setting is found with four probes, what bends with some more.
TEST(MemoryEstimate, LeadsABoundaryToTheAnswer) {
  const auto run = [](const std::function<double(double)>& share) {
    MemoryEstimate estimate;
    const Searched searched = search(
        numbers(512),
        [&](double value) {
          const double taken = share(value);
          taken <= 1 ? estimate.fitted(value, taken) : estimate.wanted(value, taken);
          return taken <= 1 ? Probed::fits : Probed::fails;
        },
        [&](const Boundary& boundary) { return estimate.largest(boundary.values()); });
    const double found = largest(searched.boundary);
    EXPECT_LE(share(found), 1);
    EXPECT_GT(share(found + 1), 1);
    EXPECT_TRUE(searched.boundary.proven());
    return searched.probes;
  };
  EXPECT_LE(run([](double value) { return 0.1 + 0.021 * value; }), 4U);
  EXPECT_LE(run([](double value) { return 0.1 + 0.0021 * value; }), 5U);
  EXPECT_LE(run([](double value) { return 0.05 + 1e-5 * value * value; }), 15U);
  EXPECT_LE(run([](double value) { return 0.05 * std::sqrt(value); }), 15U);
}

}  // namespace
}  // namespace gapless::tools
