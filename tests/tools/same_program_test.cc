// What the runs with several allocators say of each other: one program asks for the same each time.
#include "tools/same_program.h"

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json process_of(std::uint64_t in_all_mib, std::uint64_t at_peak_mib) {
  return {{"pid", 7},
          {"rank", nullptr},
          {"device", 0},
          {"fits", true},
          {"verdict", "yes"},
          {"reason", nullptr},
          {"caught_out_of_memory", 0},
          {"requested_bytes", in_all_mib * MiB},
          {"peak_requested_bytes", at_peak_mib * MiB},
          {"peak_used_bytes", at_peak_mib * MiB},
          {"total_bytes", 1000 * MiB},
          {"notes", json::array()}};
}

FitsRun run_with(const std::string& allocator, const json& row) {
  FitsRun run;
  run.allocator = allocator;
  run.rows.push_back(row);
  run.installed = {0};
  add_headroom(run);
  return run;
}

std::vector<FitsRun> compared(const json& first, const json& second, bool estimates = false) {
  std::vector<FitsRun> runs = {run_with("gapless", first), run_with("native", second)};
  judge_by_one_another(runs, estimates);
  return runs;
}

TEST(SameProgram, OneThatAsksForOtherMemoryEachTimeIsNotKnownToFit) {
  for (const FitsRun& run : compared(process_of(900, 300), process_of(1700, 500))) {
    EXPECT_TRUE(run.rows[0]["fits"].is_null());
    EXPECT_EQ(run.rows[0]["verdict"], "not known");
    EXPECT_TRUE(run.rows[0]["headroom_bytes"].is_null());
    EXPECT_THAT(run.rows[0]["reason"].get<std::string>(),
                HasSubstr("(300.00 MiB with gapless, 500.00 MiB with native at its peak)"));
    EXPECT_EQ(run.exit_status(), 3);
  }
}

TEST(SameProgram, EstimatesTakeEachRunAsItCame) {
  const FitsRun run = compared(process_of(900, 300), process_of(1700, 500), true)[0];
  EXPECT_EQ(run.rows[0]["fits"], true);
  EXPECT_EQ(run.rows[0]["verdict"], "yes, by estimates");
  EXPECT_EQ(run.rows[0]["headroom_bytes"], 700 * MiB);
  EXPECT_THAT(run.rows[0]["notes"][0].get<std::string>(), HasSubstr("without a seed"));
}

TEST(SameProgram, WhatIsTheSameOrCannotBeComparedStands) {
  const json other = process_of(1700, 500);
  const auto with = [](json row, const char* name, const json& value) {
    row[name] = value;
    return row;
  };
  const json same[] = {
      process_of(900, 300),
      process_of(904, 301),                       // a little more
      process_of(1700, 301),                      // more steps of the same
      with(process_of(700, 299), "fits", false),  // until then
      with(other, "fits", nullptr),
      with(other, "device", 1),
      with(other, "caught_out_of_memory", 2),  // it went on with less
      with(other, "requested_bytes", nullptr),
  };
  for (const json& second : same) {
    const FitsRun run = compared(process_of(900, 300), second)[0];
    EXPECT_EQ(run.rows[0]["verdict"], "yes") << second;
    EXPECT_THAT(run.rows[0]["notes"], IsEmpty());
  }
}

TEST(SameProgram, OneThatWasRefusedAfterMoreThanTheOtherAskedForIsAnother) {
  json refused = process_of(700, 400);
  refused["fits"] = false;
  const auto runs = compared(refused, process_of(900, 300));
  EXPECT_EQ(runs[0].rows[0]["fits"], false);
  EXPECT_TRUE(runs[1].rows[0]["fits"].is_null());
}

TEST(SameProgram, KernelsAreCompiledInTheFirstRun) {
  const auto with_kernels = [](const char* compiled, std::uint64_t in_all_mib,
                               std::uint64_t at_peak_mib) {
    json row = process_of(in_all_mib, at_peak_mib);
    row["compiled"] = compiled;
    return row;
  };
  const json first = with_kernels("made", 900, 400);
  const json later = with_kernels("found", 700, 300);
  const auto roomy = compared(first, later);
  for (const FitsRun& run : roomy) {
    EXPECT_EQ(run.rows[0]["verdict"], "yes");
    EXPECT_THAT(run.rows[0]["notes"][0].get<std::string>(),
                HasSubstr("in the first run, with gapless, kernels were compiled"));
  }
  json full = later;
  full["peak_used_bytes"] = 950 * MiB;  // where 50 MiB are left, and the first run took 100 more
  const auto tight = compared(first, full);
  EXPECT_EQ(tight[0].rows[0]["verdict"], "yes");
  EXPECT_EQ(tight[1].rows[0]["verdict"], "not known");
  // What a later run does more of, or differently, or compiles itself, is not that.
  const json another = with_kernels("found", 500, 200);
  for (const auto& [one, two, three] :
       {std::tuple{with_kernels("made", 700, 300), later, first}, std::tuple{first, later, another},
        std::tuple{first, later, with_kernels("made", 700, 300)}}) {
    std::vector<FitsRun> runs = {run_with("gapless", one), run_with("native", two),
                                 run_with("expandable", three)};
    judge_by_one_another(runs, false);
    EXPECT_EQ(runs[0].rows[0]["verdict"], "not known") << three;
  }
}

TEST(SameProgram, WhatFindsKernelsLeavesOpenWhatMakingThemTakes) {
  json found = process_of(900, 300);
  found["compiled"] = "found";
  found["notes"].push_back(found_kernels_note(found));
  EXPECT_THAT(found["notes"][0].get<std::string>(), HasSubstr("compiled kernels were found"));
  EXPECT_EQ(compared(found, found)[1].rows[0]["notes"].size(), 1U);
  json made = process_of(900, 300);
  made["compiled"] = "made";
  EXPECT_THAT(found_kernels_note(made), IsEmpty());
  EXPECT_THAT(compared(made, found)[1].rows[0]["notes"], IsEmpty());
}

TEST(SameProgram, OneThatWasStoppedDidNotDoAllItHadTo) {
  std::vector<FitsRun> runs = {run_with("gapless", process_of(900, 300)),
                               run_with("native", process_of(1700, 500))};
  runs[1].end.by = WatchedEnd::By::limit;
  judge_by_one_another(runs, false);
  EXPECT_EQ(runs[0].rows[0]["verdict"], "yes");
}

FitsRun judged_again(json first, const json& again) {
  first["drew_from"] = {"torch", "random"};
  FitsRun run = run_with("gapless", first);
  judge_by_another_run(run, run_with("gapless", again));
  return run;
}

TEST(SameProgram, AnotherRunOfOneAllocatorAsksForAsMuchOrNothingIsKnown) {
  const json first = process_of(900, 300);
  const FitsRun same = judged_again(first, process_of(900, 301));
  EXPECT_EQ(same.rows[0]["verdict"], "yes");
  EXPECT_THAT(same.rows[0]["notes"].dump(),
              HasSubstr("numbers were drawn (random, torch), and another run asked for as much"));
  EXPECT_EQ(same.exit_status(), 0);

  const FitsRun other = judged_again(first, process_of(1700, 500));
  EXPECT_EQ(other.rows[0]["verdict"], "not known");
  EXPECT_THAT(other.rows[0]["reason"].get<std::string>(), HasSubstr("500.00 MiB with gapless"));
  EXPECT_EQ(other.exit_status(), 3);

  json died = process_of(800, 300);  // of pieces, with as much asked for
  died["fits"] = false;
  died["reason"] = "it ran out of memory";
  const FitsRun no = judged_again(first, died);
  EXPECT_TRUE(no.rows[0]["fits"].is_null());
  EXPECT_TRUE(no.rows[0]["headroom_bytes"].is_null());
  EXPECT_THAT(no.rows[0]["reason"].get<std::string>(),
              HasSubstr("another run does not fit: it ran out of memory"));

  json unknown = first;
  unknown["fits"] = nullptr;
  const FitsRun cut = judged_again(first, unknown);
  EXPECT_EQ(cut.rows[0]["verdict"], "yes");
  EXPECT_THAT(cut.rows[0]["notes"].dump(), HasSubstr("did not come so far as to be compared"));
}

TEST(SameProgram, WhatDrewAndIsNotComparedIsToldSo) {
  json row = process_of(900, 300);
  EXPECT_THAT(drawn_note(run_with("gapless", row)), IsEmpty());
  row["drew_from"] = {"torch"};
  EXPECT_THAT(drawn_note(run_with("gapless", row)),
              HasSubstr("(torch): another run may ask for other memory"));
}

TEST(SameProgram, OnlyWhatFitsIsTakenForNotKnown) {
  FitsRun run = run_with("gapless", process_of(900, 300));
  run.rows.push_back(process_of(800, 300));
  run.rows[1]["fits"] = false;
  run.rows[1]["verdict"] = "no";
  take_for_not_known(run, "why");
  EXPECT_EQ(run.rows[0]["verdict"], "not known");
  EXPECT_EQ(run.rows[0]["reason"], "why");
  EXPECT_EQ(run.rows[1]["verdict"], "no");
}

TEST(SameProgram, OnlyRunsThatFitAndDrewAreTriedAgain) {
  json row = process_of(900, 300);
  EXPECT_THAT(drew_from(run_with("gapless", row)), IsEmpty());
  row["drew_from"] = {"torch"};
  EXPECT_EQ(drew_from(run_with("gapless", row)), "torch");
  row["fits"] = false;
  EXPECT_THAT(drew_from(run_with("gapless", row)), IsEmpty());
}

}  // namespace
}  // namespace gapless::tools
