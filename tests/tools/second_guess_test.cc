// What a run with other numbers says of the first one's answer.
#include "tools/second_guess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/estimates_from.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = 1 << 20;

// A row of a process that read three integers that nobody knows.
json row_of(std::uint64_t allocated_mib, const json& rank = nullptr) {
  return {{"pid", 7},
          {"rank", rank},
          {"device", 0},
          {"fits", true},
          {"verdict", "yes"},
          {"reason", nullptr},
          {"unknown", "zeros"},
          {"computes_numbers", true},
          {"peak_allocated_bytes", allocated_mib * kMiB},
          {"peak_used_bytes", allocated_mib * kMiB},
          {"total_bytes", 1000 * kMiB},
          {"estimates_from",
           {{"kind", "integer"},
            {"count", 3},
            {"bounded", 0},
            {"steered", 3},
            {"step", 0},
            {"line", "train.py:12"},
            {"library_line", nullptr}}},
          {"notes", json::array()}};
}

FitsRun run_of(const std::vector<json>& rows, const std::string& allocator = "gapless") {
  FitsRun run;
  run.allocator = allocator;
  run.seconds = 10;
  for (const json& row : rows) run.rows.push_back(row);
  run.installed.assign(rows.size(), 0);
  add_headroom(run);
  return run;
}

json without_success(json row, const json& fits, const std::string& reason) {
  row["fits"] = fits;
  row["reason"] = reason;
  return row;
}

json judged(const json& row, const FitsRun& again) {
  std::vector<FitsRun> runs = {run_of({row})};
  judge_by_second_guess(runs, runs[0], again);
  return runs[0].rows[0];
}

TEST(SecondGuess, IsWantedWhereTheHostReadWhatItMaySteerBy) {
  std::vector<FitsRun> runs = {run_of({row_of(100)}), run_of({row_of(100)}, "native")};
  EXPECT_EQ(wants_second_guess(runs, {}), runs.data());
  EXPECT_EQ(second_guess_limit_seconds(runs[0]), 70);
  SimulatedGpus taken_as_they_come;
  taken_as_they_come.estimates = true;
  EXPECT_EQ(wants_second_guess(runs, taken_as_they_come), nullptr);

  runs[0].rows[0]["fits"] = false;
  EXPECT_EQ(wants_second_guess(runs, {}), &runs[1]) << "of one that fits";
  const auto with = [](const char* name, const json& value) {
    json row = row_of(100);
    row[name] = value;
    return std::vector<FitsRun>{run_of({row})};
  };
  EXPECT_EQ(wants_second_guess(with("unknown", "noise"), {}), nullptr);
  EXPECT_EQ(wants_second_guess(with("computes_numbers", false), {}), nullptr);
  EXPECT_EQ(wants_second_guess(with("estimates_from", nullptr), {}), nullptr);
  json only_printed = row_of(100)["estimates_from"];
  only_printed["kind"] = "number";
  only_printed["steered"] = 0;
  EXPECT_EQ(wants_second_guess(with("estimates_from", only_printed), {}), nullptr);
}

TEST(SecondGuess, LetsTheAnswerStandWhereMemoryIsTheSame) {
  const json row = judged(row_of(100), run_of({row_of(100)}));
  EXPECT_EQ(row["verdict"], "yes");
  EXPECT_EQ(row["headroom_bytes"], 900 * kMiB);
  ASSERT_EQ(row["notes"].size(), 1U);
  EXPECT_EQ(row["notes"][0],
            "the host read integers or flags that nobody knows 3 times, first (train.py:12); with "
            "other numbers in their place (--unknown noise) it takes as much");
  EXPECT_EQ(row["other_numbers"],
            json({{"unknown", "noise"}, {"fits", true}, {"peak_allocated_bytes", 100 * kMiB}}));
}

TEST(SecondGuess, TakesTheAnswerBackWhereMemoryIsAnother) {
  for (const std::uint64_t mib : {50, 150}) {
    const json row = judged(row_of(100), run_of({row_of(mib)}));
    EXPECT_EQ(row["fits"], nullptr);
    EXPECT_EQ(row["verdict"], "not known");
    EXPECT_EQ(row["headroom_bytes"], nullptr);
    EXPECT_THAT(row["reason"].get<std::string>(), HasSubstr("instead of 100.00 MiB"));
    EXPECT_THAT(row["notes"], IsEmpty());
  }
  const FitsRun refused = run_of({without_success(row_of(90), false, "2 GiB asked")});
  const json row = judged(row_of(100), refused);
  EXPECT_EQ(row["fits"], nullptr);
  EXPECT_THAT(row["reason"].get<std::string>(), HasSubstr("it does not fit: 2 GiB asked"));
}

json choosing(std::uint64_t mib, const json& choices, int integers = 0) {
  json row = row_of(mib);
  row["choices"] = choices;
  row["estimates_from"]["integers"] = integers;
  return row;
}

TEST(SecondGuess, MakesChoicesTheOtherWayTogetherAndEachAlone) {
  EXPECT_THAT(other_ways(run_of({row_of(100)})), ElementsAre(""));
  const json one = {{"train.py:1:24", false}};
  EXPECT_THAT(other_ways(run_of({choosing(100, one)})), ElementsAre(one.dump()));
  // What is now this and now that goes by the numbers; so does what processes do not agree on.
  const json first = {{"a.py:1:2", true}, {"b.py:3:4", false}, {"c.py:5:6", nullptr}};
  const json second = {{"a.py:1:2", true}, {"b.py:3:4", true}, {"d.py:7:8", false}};
  const FitsRun run = run_of({choosing(100, first), choosing(100, second)});
  const json constant = {{"a.py:1:2", true}, {"d.py:7:8", false}};
  EXPECT_EQ(choices_of(run), constant.dump());
  EXPECT_THAT(other_ways(run), ElementsAre(constant.dump(), json{{"a.py:1:2", true}}.dump(),
                                           json{{"d.py:7:8", false}}.dump()));
  json many;
  for (int i = 0; i < 20; ++i) many[std::to_string(i)] = true;
  EXPECT_EQ(other_ways(run_of({choosing(100, many)})).size(), 7U);
}

TEST(SecondGuess, OneWayOfChoosingMayTakeLessThanTheOther) {
  const json choices = {{"train.py:1:24", false}};
  const json row = judged(choosing(100, choices), run_of({choosing(50, choices)}));
  EXPECT_EQ(row["fits"], true);
  EXPECT_EQ(row["notes"][0],
            "the host read integers or flags that nobody knows 3 times, first (train.py:12); with "
            "other numbers in their place (--unknown noise) and each choice made the other way it "
            "takes less");
  EXPECT_EQ(judged(choosing(100, choices), run_of({choosing(150, choices)}))["fits"], nullptr);
  EXPECT_EQ(judged(choosing(100, choices, 1), run_of({choosing(50, choices, 1)}))["fits"], nullptr)
      << "a length may have been less";
}

TEST(SecondGuess, NoIsNoAnswerWhereOtherNumbersFit) {
  std::vector<FitsRun> runs = {run_of({without_success(row_of(900), false, "2 GiB asked")})};
  ASSERT_EQ(wants_second_guess_of_no(runs, {}), runs.data());
  EXPECT_EQ(wants_second_guess(runs, {}), nullptr);
  judge_no_by_second_guess(runs, run_of({without_success(row_of(900), false, "1 GiB asked")}));
  EXPECT_EQ(runs[0].rows[0]["fits"], false);
  EXPECT_FALSE(went_by_sizes(runs[0]));
  json with_noise = row_of(300);
  with_noise["unknown"] = "noise";
  judge_no_by_second_guess(runs, run_of({with_noise}));
  EXPECT_EQ(runs[0].rows[0]["fits"], nullptr);
  EXPECT_EQ(runs[0].rows[0]["reason"],
            "with zeros in the place of numbers that nobody knows it does not fit (2 GiB asked), "
            "and with others (--unknown noise) it does: 300.00 MiB are allocated");
  json read_nothing = without_success(row_of(900), false, "2 GiB asked");
  read_nothing["estimates_from"] = nullptr;
  EXPECT_EQ(wants_second_guess_of_no({run_of({read_nothing})}, {}), nullptr);
}

TEST(SecondGuess, SaysNothingByARunThatFailedForAnotherReason) {
  const json row =
      judged(row_of(100), run_of({without_success(row_of(60), nullptr, "IndexError: 7")}));
  EXPECT_EQ(row["fits"], true);
  EXPECT_THAT(row["notes"][0].get<std::string>(), HasSubstr("it did not end well"));
  EXPECT_EQ(
      judged(row_of(100), run_of({without_success(row_of(160), nullptr, "KeyError")}))["fits"],
      nullptr)
      << "it had taken more until then";

  FitsRun stopped = run_of({without_success(row_of(100), nullptr, "time limit")});
  stopped.end.by = WatchedEnd::By::limit;
  EXPECT_THAT(judged(row_of(100), stopped)["notes"][0].get<std::string>(),
              HasSubstr("had not ended when it was stopped"));
  FitsRun nothing;
  nothing.rows.push_back({{"pid", nullptr}, {"rank", nullptr}, {"device", nullptr}});
  EXPECT_THAT(judged(row_of(100), nothing)["notes"][0].get<std::string>(),
              HasSubstr("did not come so far"));
  FitsRun interrupted = run_of({row_of(200)});
  interrupted.end.by = WatchedEnd::By::user;
  EXPECT_EQ(judged(row_of(100), interrupted)["fits"], true);
}

TEST(SecondGuess, ComparesEachRankWithItselfAndHoldsForEveryAllocator) {
  std::vector<FitsRun> runs = {run_of({row_of(100, 0), row_of(200, 1)}),
                               run_of({row_of(101, 1), row_of(100, 0)}, "native")};
  const FitsRun first = runs[0];
  judge_by_second_guess(runs, first, run_of({row_of(300, 1), row_of(100, 0)}));
  EXPECT_EQ(runs[0].rows[0]["fits"], true);
  EXPECT_EQ(runs[0].rows[1]["fits"], nullptr);
  EXPECT_EQ(runs[1].rows[1]["fits"], true);
}

TEST(SecondGuess, ReplacesWhatWasSaidOfAFlagBefore) {
  json row = row_of(100);
  row["estimates_from"]["kind"] = "flag";
  row["notes"] = {"another", estimate_note(row)};
  const json after = judged(row, run_of({row_of(100)}));
  ASSERT_EQ(after["notes"].size(), 2U);
  EXPECT_EQ(after["notes"][0], "another");
  EXPECT_THAT(after["notes"][1].get<std::string>(), HasSubstr("it takes as much"));
}

// A row of a process in which sizes followed from what nobody knows.
json sized_row(std::uint64_t allocated_mib, bool most = false) {
  json row = row_of(allocated_mib);
  row["unknown"] = most ? "most" : "zeros";
  row["estimates_from"]["kind"] = most ? "bound" : "size";
  if (most) row["estimates_from"]["bounded"] = 3;
  judge_estimates(row, /*accepted=*/false);
  return row;
}

TEST(SecondGuess, IsTheMostWhereSizesFollowFromSuchNumbers) {
  EXPECT_TRUE(fits_but_for_sizes(run_of({sized_row(100)}), {}));
  EXPECT_TRUE(fits_but_for_sizes(run_of({row_of(100), sized_row(100)}), {}));
  EXPECT_FALSE(fits_but_for_sizes(run_of({row_of(100)}), {}));
  EXPECT_FALSE(fits_but_for_sizes(
      run_of({sized_row(100), without_success(row_of(1), false, "2 GiB asked")}), {}));
  SimulatedGpus most;
  most.unknown = "most";
  EXPECT_FALSE(fits_but_for_sizes(run_of({sized_row(100, true)}), most));
  EXPECT_EQ(sized_row(100, true)["by_estimates"], true) << "integers were read";

  const auto judged_by = [](const json& row) {
    std::vector<FitsRun> runs = {run_of({sized_row(100)}), run_of({sized_row(102)}, "native")};
    judge_by_most(runs, runs[0], run_of({row}));
    EXPECT_EQ(runs[0].rows[0]["fits"], runs[1].rows[0]["fits"]) << "of sizes that are the same";
    return runs[0].rows[0];
  };
  const json same = judged_by(sized_row(100, true));
  EXPECT_EQ(same["verdict"], "yes");
  EXPECT_EQ(same["reason"], nullptr);
  EXPECT_EQ(same["headroom_bytes"], 900 * kMiB);
  EXPECT_EQ(same["other_numbers"]["unknown"], "most");
  EXPECT_THAT(same["notes"][0].get<std::string>(),
              HasSubstr("with as many as there can be (--unknown most) it takes as much"));

  // What was known of the GPU is so of this verdict, too.
  json old = sized_row(100);
  old["compute_capability"] = "7.0";
  old["built_for"] = {"sm_80"};
  std::vector<FitsRun> on_old = {run_of({old})};
  judge_by_most(on_old, on_old[0], run_of({sized_row(100, true)}));
  EXPECT_EQ(on_old[0].rows[0]["verdict"], "yes, with another build of PyTorch");
  EXPECT_THAT(on_old[0].rows[0]["notes"].back().get<std::string>(), HasSubstr("none for 7.0"));

  json boundless = sized_row(100, true);  // of repeat_interleave, which has no most
  boundless["estimates_from"]["kind"] = "size";
  EXPECT_EQ(judged_by(boundless)["fits"], nullptr);

  const json more = judged_by(sized_row(140, true));
  EXPECT_EQ(more["fits"], nullptr);
  EXPECT_THAT(more["reason"].get<std::string>(),
              HasSubstr("140.00 MiB are allocated instead of 100.00 MiB, which fits as well, but "
                        "need not be the most"));

  json refused = without_success(sized_row(900, true), nullptr, "3 GiB asked");
  refused["by_estimates"] = false;
  const json too_much = judged_by(refused);
  EXPECT_EQ(too_much["fits"], nullptr);
  EXPECT_THAT(too_much["reason"].get<std::string>(), HasSubstr("it is not known: 3 GiB asked"));
}

}  // namespace
}  // namespace gapless::tools
