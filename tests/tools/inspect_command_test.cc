// gapless inspect and gapless diff as a user calls them.
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/base/files.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/run_command.h"

namespace {

using gapless::testing::Output;
using gapless::testing::run;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

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

// A folder's name may stand within another path, and a drive is no folder.
TEST_F(InspectCommand, LeavesAFolderOutOnlyWhereAPathBegins) {
  gapless::Trace trace = gapless::load_traces(kTinyTrace).at(0);
  trace.stacks = nullptr;
  trace.site_stacks.clear();
  const auto text_with = [&](const std::string& one, const std::string& other) {
    for (std::size_t i = 1; i < trace.sites.size(); ++i) {
      trace.sites[i] = fmt::format("{}:{} f", i % 2 == 0 ? one : other, i);
    }
    const std::string file = folder.file("paths.gtrace");
    gapless::write_file(file, gapless::write_compact({trace}));
    return run("inspect --try none " + file).text;
  };
  const std::string relative = text_with("a/x.py", "a/lib_a/y.py");
  EXPECT_THAT(relative, HasSubstr(" x.py:"));
  EXPECT_THAT(relative, HasSubstr(" lib_a/y.py:"));
  EXPECT_THAT(text_with("C:\\a\\x.py", "C:\\b\\y.py"), HasSubstr("C:\\a\\x.py:"));
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

TEST_F(InspectCommand, GroupsByHowLongBlocksLive) {
  const std::string steps = GAPLESS_TRACES "/lm-small-train.gtrace";
  const json found =
      json::parse(run("inspect --by lifetime --try none --json " + steps).text).at(0);
  EXPECT_GE(found["step_ends"].size(), 5U);
  std::map<std::string, std::uint64_t> bytes;
  for (const json& group : found["groups"]) bytes[group["name"]] = group["bytes"];
  EXPECT_GT(bytes["within one step"], 0U);
  EXPECT_GT(bytes["from the first step to the last"], 0U);
  std::uint64_t all = 0;
  for (const auto& [name, of_it] : bytes) all += of_it;
  EXPECT_EQ(all, found["at_moment"]["active_bytes"]);
  EXPECT_THAT(run("inspect --by lifetime --try none " + steps).text,
              HasSubstr("steps are told by memory that falls and rises; the moment is in step"));
  EXPECT_THAT(run("inspect --by lifetime --try none " GAPLESS_SNAPSHOT).text,
              HasSubstr("No steps can be told apart"));
  const json site = json::parse(run("inspect --try none --json " + steps).text).at(0);
  EXPECT_FALSE(site.contains("step_ends"));  // only where they are asked for
}

// Four ranks: copies of one recording, and a fourth that is another.
TEST_F(InspectCommand, SaysWhichRankStandsOut) {
  std::string ranks;
  for (const std::string rank : {"rank0", "rank1", "rank2", "rank3"}) {
    const std::string file = folder.file(rank + ".gtrace");
    std::filesystem::copy_file(rank == "rank2" ? GAPLESS_TRACES "/lm-medium-train-ctx128.gtrace"
                                               : GAPLESS_TRACES "/lm-small-train.gtrace",
                               file);
    ranks += " " + file;
  }
  const json told = json::parse(run("inspect --by rank --json" + ranks).text);
  ASSERT_EQ(told["ranks"].size(), 4U);
  EXPECT_EQ(told["ranks"][2]["rank"], "rank2");
  EXPECT_EQ(told["median"]["peak_allocated_bytes"], told["ranks"][0]["peak_allocated_bytes"]);
  ASSERT_FALSE(told["outliers"].empty());
  for (const json& outlier : told["outliers"]) EXPECT_EQ(outlier["rank"], "rank2");
  EXPECT_EQ(told["outliers"][0]["in"], "allocated");
  EXPECT_EQ(told["outliers"][0]["bytes"], told["ranks"][2]["peak_allocated_bytes"]);
  std::int64_t more = 0;
  for (const json& place : told["outliers"][0]["holds_more"]) {
    EXPECT_GT(place["more_bytes"], 0);
    more += place["more_bytes"].get<std::int64_t>();
  }
  EXPECT_GE(more, told["ranks"][2]["peak_allocated_bytes"].get<std::int64_t>() -
                      told["ranks"][0]["peak_allocated_bytes"].get<std::int64_t>());
  const std::string text = run("inspect --by rank" + ranks).text;
  EXPECT_THAT(text, HasSubstr("rank2 stands out: it allocates"));
  EXPECT_THAT(text, HasSubstr("Compared with rank0, it holds"));
  EXPECT_THAT(text, Not(HasSubstr("rank1 stands out")));
  // What is said of several recordings ends with the same.
  const std::string both = run("inspect --try none" + ranks).text;
  EXPECT_TRUE(both.ends_with(text)) << both;
}

TEST_F(InspectCommand, TellsRanksApartThatAreNamedAlike) {
  std::string files;
  for (const std::string node : {"node0", "node1", "node2"}) {
    std::filesystem::create_directory(folder.file(node));
    const std::string file = folder.file(node) + "/rank0.gtrace";
    std::filesystem::copy_file(kTinyTrace, file);
    files += " " + file;
  }
  const json told = json::parse(run("inspect --by rank --json" + files).text);
  EXPECT_EQ(told["ranks"][1]["rank"], "node1/rank0");
  EXPECT_TRUE(told["outliers"].empty());
  EXPECT_THAT(run("inspect --by rank" + files).text, HasSubstr("None of the 3 stands out"));
  // A file that cannot be read leaves the others.
  const Output output = run("inspect --by rank" + files + " none.gtrace");
  EXPECT_EQ(output.status, 2);
  EXPECT_THAT(output.text, HasSubstr("None of the 3 stands out"));
}

TEST_F(InspectCommand, TakesEachDeviceOfAFileForARank) {
  std::vector<gapless::Trace> traces;
  for (gapless::DeviceIndex device = 0; device < 3; ++device) {
    traces.push_back(gapless::load_traces(kTinyTrace).at(0));
    traces.back().device = device;
  }
  const std::string file = folder.file("node.gtrace");
  gapless::write_file(file, gapless::write_compact(traces));
  const json told = json::parse(run("inspect --by rank --json " + file).text);
  ASSERT_EQ(told["ranks"].size(), 3U);
  for (int device = 0; device < 3; ++device) {
    EXPECT_EQ(told["ranks"][device]["rank"], fmt::format("node gpu{}", device));
    EXPECT_EQ(told["ranks"][device]["device"], device);
  }
  EXPECT_TRUE(told["outliers"].empty());
}

TEST_F(InspectCommand, LeavesNamesWholeThatHaveNoFolderInCommon) {
  gapless::Trace trace = gapless::load_traces(kTinyTrace).at(0);
  trace.stacks = nullptr;
  trace.site_stacks.clear();
  for (std::size_t i = 1; i < trace.sites.size(); ++i) {
    trace.sites[i] = fmt::format("/{}/code/a.py:{} f", i % 2 == 0 ? "opt" : "srv", i + 1);
  }
  const auto sites_with = [&](const char* name) {
    gapless::write_file(folder.file(name), gapless::write_compact({trace}));
    return run("inspect --try none " + folder.file(name)).text;
  };
  const std::string apart = sites_with("apart.gtrace");
  EXPECT_THAT(apart, HasSubstr("/opt/code/a.py:"));
  EXPECT_THAT(apart, Not(HasSubstr("Files are in")));
  for (std::size_t i = 1; i < trace.sites.size(); ++i) trace.sites[i].replace(1, 3, "opt");
  const std::string together = sites_with("together.gtrace");
  EXPECT_THAT(together, HasSubstr("Files are in /opt/code/."));
  EXPECT_THAT(together, Not(HasSubstr("/opt/code/a.py:")));
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
