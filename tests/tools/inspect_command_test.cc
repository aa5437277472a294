// gapless inspect and gapless diff as a user calls them.
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/scratch_folder.h"
#include "tests/tools/run_command.h"

namespace {

using gapless::testing::Output;
using gapless::testing::run;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string kTinyTrace = GAPLESS_TRACES "/tiny.gtrace";

class InspectCommand : public ::testing::Test {
 protected:
  gapless::ScratchFolder folder;
};

TEST_F(InspectCommand, ExplainsASnapshot) {
  const Output output = run("inspect " GAPLESS_SNAPSHOT);
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("largest request that would succeed"));
  const json list = json::parse(run("inspect --json --blocks 3 " GAPLESS_SNAPSHOT).text);
  ASSERT_EQ(list.size(), 1U);  // one object per file, be it one
  const json& found = list[0];
  EXPECT_EQ(found["total"]["reserved_bytes"], 3781165056U);
  EXPECT_EQ(found["biggest_blocks"].size(), 3U);
  std::uint64_t holes = 0;
  for (const json& size : found["holes"]) holes += size["bytes"].get<std::uint64_t>();
  EXPECT_EQ(found["total"]["free_bytes"], holes);
}

TEST_F(InspectCommand, ShowsARecordingAtTheMomentAskedFor) {
  const auto moment = [&](const std::string& words) {
    return json::parse(run("inspect --try none --json " + words).text).at(0);
  };
  const json peak = moment(kTinyTrace);  // of a gapless trace
  EXPECT_EQ(peak["at"], "peak");
  EXPECT_EQ(peak["at_moment"],
            peak["at_peak"].patch(json::parse(R"([{"op":"remove","path":"/event"}])")));
  // A trace says of its peak what the snapshot says that it was made of, with or without segments.
  const json snapshot = moment(GAPLESS_SNAPSHOT);
  EXPECT_EQ(peak["total"], snapshot["total"]);
  EXPECT_EQ(peak["findings"][0], snapshot["findings"][0]);
  const json end = moment("--at end " GAPLESS_SNAPSHOT);
  EXPECT_EQ(end["event"], end["events"].get<int>() - 1);
  EXPECT_EQ(end["total"]["reserved_bytes"], end["at_end"]["reserved_bytes"]);
  const json first = moment("--at 0 " GAPLESS_SNAPSHOT);
  EXPECT_LT(first["at_moment"]["allocated_bytes"], end["at_peak"]["allocated_bytes"]);
  for (const std::string wrong :
       {"--at oom ", "--at 97 ", "--at now ", "--at -1 ", "--by color ", "--kinds none.json "}) {
    EXPECT_EQ(run("inspect " + wrong + GAPLESS_SNAPSHOT).status, 2) << wrong;
  }
}

TEST_F(InspectCommand, TriesWhatWouldHelp) {
  const json report = json::parse(run("inspect --json " GAPLESS_SNAPSHOT).text).at(0);
  ASSERT_GE(report["cures"].size(), 6U);
  const std::string all = "gapless,native,expandable,native+roundup_power2_divisions:4";
  const json replayed = json::parse(run("replay --json -a " + all + " " GAPLESS_SNAPSHOT).text);
  const json fitted = json::parse(run("fit --json -a " + all + " " GAPLESS_SNAPSHOT).text);
  int compared = 0;
  for (std::size_t i = 0; i < replayed.size(); ++i) {
    for (const json& cure : report["cures"]) {
      if (cure["allocator"] != replayed[i]["allocator"] || cure.contains("without_site")) continue;
      EXPECT_EQ(cure["reserved_bytes"], replayed[i]["peak_reserved_bytes"]) << cure;
      EXPECT_EQ(cure["least_capacity_bytes"], fitted[i]["min_capacity_bytes"]) << cure;
      ++compared;
    }
  }
  EXPECT_GE(compared, 3);
}

TEST_F(InspectCommand, DiffSaysWhatGrew) {
  const std::string peak = GAPLESS_SNAPSHOT;
  const json same = json::parse(run("diff --json " + peak + " " + peak).text).at(0);
  for (const json& group : same["groups"]) EXPECT_EQ(group["grew_by_bytes"], 0) << group;
  // Sites of a trace and of the snapshot it was made of are the same; all that is live comes.
  const std::string trace = folder.file("one.gtrace");
  ASSERT_EQ(run("convert " + peak + " -o " + trace).status, 0);
  const json across = json::parse(run("diff --json --at peak " + peak + " " + trace).text).at(0);
  EXPECT_EQ(across["before"]["allocated_bytes"], across["after"]["allocated_bytes"]);
  for (const json& group : across["groups"]) EXPECT_EQ(group["grew_by_bytes"], 0) << group;
  std::uint64_t all = 0;
  const json sizes =
      json::parse(run("diff --json --by size --at 0 " + peak + " " + peak).text).at(0);
  for (const json& group : sizes["groups"]) all += group["after_bytes"].get<std::uint64_t>();
  EXPECT_EQ(all, sizes["after"]["active_bytes"]);
  EXPECT_THAT(run("diff " + peak + " " + peak).text, HasSubstr("grew by"));
  EXPECT_EQ(run("diff " + peak).status, 2);
  EXPECT_EQ(run("diff " + peak + " none.pickle").status, 2);
}

TEST_F(InspectCommand, TakesRulesForWhatMemoryIs) {
  const std::string rules = folder.file("rules.json");
  std::ofstream(rules) << R"([{"frame": "Backward0", "is": "mine"}])";
  const std::string text =
      run("inspect --try none --json --kinds " + rules + " " GAPLESS_SNAPSHOT).text;
  const json kinds = json::parse(text).at(0)["kinds"];
  EXPECT_TRUE(std::any_of(kinds.begin(), kinds.end(), [](const json& kind) {
    return kind["name"] == "mine";
  })) << kinds;
  for (const std::string bad :
       {"{}", "[{}]", R"([{"frame": "", "is": "x"}])", "[", R"([{"frame": 1, "is": "x"}])"}) {
    std::ofstream(rules) << bad;
    const Output output = run("inspect --kinds " + rules + " " GAPLESS_SNAPSHOT);
    EXPECT_EQ(output.status, 2) << bad;
    EXPECT_THAT(output.text, HasSubstr("rules.json")) << bad;
  }
}

TEST_F(InspectCommand, SaysWhatIsAtAnAddress) {
  const json list =
      json::parse(run("inspect --json --try none --at end --blocks 1 " GAPLESS_SNAPSHOT).text);
  const json& biggest = list[0]["biggest_blocks"][0];
  const auto address = biggest["address"].get<std::uint64_t>();
  const std::string at = fmt::format("inspect " GAPLESS_SNAPSHOT " --address {:#x}", address + 40);
  EXPECT_THAT(run(at).text, HasSubstr("is at byte 40 of a block of"));
  const json found = json::parse(run(at + " --json").text)[0];
  EXPECT_EQ(found["address"], address + 40);
  EXPECT_EQ(found["block"]["state"], "live");
  EXPECT_EQ(found["block"]["offset"], 40);
  EXPECT_EQ(found["block"]["requested_bytes"], biggest["requested_bytes"]);
  EXPECT_THAT(run("inspect " GAPLESS_SNAPSHOT " --address 12").text, HasSubstr("not in or near"));
  for (const std::string wrong : {"0x", "x", "-4", "0x12345678123456781", "12g"}) {
    const Output output = run("inspect " GAPLESS_SNAPSHOT " --address " + wrong);
    EXPECT_EQ(output.status, 2) << wrong;
    EXPECT_THAT(output.text, HasSubstr("expected an address")) << wrong;
  }
}

}  // namespace
