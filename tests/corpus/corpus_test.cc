// The corpus: programs are valid and the same for a seed, unseen ones stay so, differences are
// right.
#include <algorithm>
#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "allocator/base/error.h"
#include "bench/corpus/program.h"
#include "bench/corpus/report.h"
#include "bench/corpus/summary.h"

namespace gapless::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

ProgramFigures figures_named(const std::string& name, Group group, double over) {
  ProgramFigures figures{name, group, 2000, 1, 2 * kLargeProgramBytes, {}};
  figures.by_allocator["gapless"][Figure::over] = over;
  return figures;
}

TEST(Corpus, EveryFamilyMakesValidProgramsWithinBounds) {
  for (const std::string& family : family_names()) {
    for (std::uint64_t i = 0; i < 6; ++i) {
      const Trace trace = corpus_program({7, i}, family);
      EXPECT_NO_THROW(check_trace(trace));
      EXPECT_GE(trace.events.size(), kLeastProgramEvents) << trace.name;
      EXPECT_LE(trace.events.size(), kMostProgramEvents) << trace.name;
      EXPECT_GE(peak_live_bytes(trace), kLeastProgramBytes) << trace.name;
      EXPECT_LE(peak_live_bytes(trace), kMostProgramBytes) << trace.name;
    }
  }
}

TEST(Corpus, ASeedMeansOneProgram) {
  for (const std::string& family : family_names()) {
    const std::uint64_t digest = digest_of(corpus_program({3, 4}, family));
    EXPECT_EQ(digest, digest_of(corpus_program({3, 4}, family)));
    EXPECT_NE(digest, digest_of(corpus_program({3, 5}, family)));
    EXPECT_NE(digest, digest_of(corpus_program({4, 4}, family)));
  }
}

TEST(Corpus, AnUnknownFamilyIsRefused) {
  EXPECT_THROW(corpus_program({1, 0}, "poetry"), std::invalid_argument);
}

TEST(Corpus, HalfOfAllAreUnseenAndStaySo) {
  std::uint64_t unseen = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) unseen += is_unseen({1, i}) ? 1 : 0;
  EXPECT_GT(unseen, 400U);
  EXPECT_LT(unseen, 600U);
  EXPECT_EQ(is_unseen({1, 17}), is_unseen({1, 17}));
}

TEST(Corpus, RowsOfUnseenProgramsNeverLeave) {
  std::vector<ProgramFigures> programs = {figures_named("shown", Group::seen, 1)};
  for (int i = 0; i < 12; ++i) programs.push_back(figures_named("hidden", Group::unseen, i));
  EXPECT_THAT(rows_text(programs, {"gapless"}), HasSubstr("shown"));
  EXPECT_THAT(rows_text(programs, {"gapless"}), Not(HasSubstr("hidden")));
  EXPECT_THAT(rows_to_json(programs).dump(), Not(HasSubstr("hidden")));
  EXPECT_THAT(to_json(tables_of(programs), {}).dump(), Not(HasSubstr("hidden")));
  EXPECT_EQ(tables_of(programs).size(), 4U);
  programs.resize(kFewestUnseen);  // nine of them: their sum would tell too much
  EXPECT_EQ(tables_of(programs).size(), 2U);
}

TEST(Corpus, SpreadsAreOfValuesThatAreThere) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(spread_of(values), (Spread{100, 50.5, 90, 99, 100}));
  EXPECT_EQ(spread_of({4}), (Spread{1, 4, 4, 4, 4}));
}

TEST(Corpus, DifferencesAreToTheTableBefore) {
  const auto before = tables_of({figures_named("a", Group::seen, 1.5)});
  const auto now = tables_of({figures_named("a", Group::seen, 1.25)});
  const auto kept = to_json(before, {});
  const auto spread = kept_spread(kept, now.front(), "gapless", Figure::over);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->mean, 1.5);
  EXPECT_FALSE(kept_spread(kept, now.front(), "native", Figure::over));
  EXPECT_FALSE(kept_spread(nlohmann::json(), now.front(), "gapless", Figure::over));
  EXPECT_THAT(text_of(now, {"gapless"}, kept), HasSubstr("1.25 (-0.25)"));
  EXPECT_EQ(with_difference(2, 2.001, 2), "2.00");
  EXPECT_EQ(with_difference(3, {}, 0), "3");
}

TEST(Corpus, FiguresAreReadByName) {
  EXPECT_FALSE(read_figures("quick").least);
  EXPECT_TRUE(read_figures("all").least);
  EXPECT_TRUE(read_figures("over,calls").has(Figure::stalls_10));
  EXPECT_FALSE(read_figures("over,calls").has(Figure::a100_ms));
  EXPECT_THROW(read_figures("speed"), InputError);
  EXPECT_THROW(read_figures(""), InputError);
}

TEST(Corpus, AMeasuredProgramHasTheFiguresThatWereAskedFor) {
  const Trace trace = corpus_program({1, 0}, "recommender");
  const FigureValues values = measure(trace, "native", "", read_figures("over"));
  ASSERT_TRUE(values[Figure::over]);
  EXPECT_GE(*values[Figure::over], 0);
  EXPECT_FALSE(values[Figure::calls_5]);
  EXPECT_FALSE(values[Figure::least]);
}

#ifdef GAPLESS_CORPUS
std::string told_by(const std::string& arguments) {
  std::FILE* pipe = popen((std::string(GAPLESS_CORPUS) + " " + arguments + " 2>&1").c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  const int status = pclose(pipe);
  EXPECT_EQ(WEXITSTATUS(status), 2) << arguments;
  return text;
}

TEST(Corpus, BadArgumentsAreTold) {
  EXPECT_THAT(told_by("--family poetry"), HasSubstr("there is no family \"poetry\""));
  EXPECT_THAT(told_by("--options slak:1"), HasSubstr("slak"));
  EXPECT_THAT(told_by("--figures speed"), HasSubstr("there is no \"speed\""));
  EXPECT_THAT(told_by("--allocators other"), HasSubstr("there is no \"other\""));
  EXPECT_THAT(told_by("--write /dev/null/such"), HasSubstr("cannot be made"));
  EXPECT_THAT(told_by("--programs -3"), HasSubstr("--programs"));
}
#endif

}  // namespace
}  // namespace gapless::bench
