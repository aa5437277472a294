// The gapless command as a user runs it: what it prints, and what it returns.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "tests/support/scratch_folder.h"

namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

struct Output {
  int status = -1;
  std::string text;  // standard output and error together
};

Output run(const std::string& arguments) {
  Output output;
  FILE* pipe = popen((std::string(GAPLESS_COMMAND) + " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.text.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

const std::string kTiny = GAPLESS_TRACES "/tiny.gtrace";
const std::string kSmall = GAPLESS_TRACES "/lm-small-train.gtrace";

class Command : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder.file(name), std::ios::binary) << bytes;
    return folder.file(name);
  }
  gapless::ScratchFolder folder;
};

TEST_F(Command, HelpHasExamplesForEveryCommand) {
  const Output help = run("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.text, HasSubstr("Examples:"));
  for (const std::string command : {"replay", "fit", "inspect", "convert", "generate", "options"}) {
    EXPECT_THAT(help.text, HasSubstr(command));
    const Output own = run(command + " --help");
    EXPECT_EQ(own.status, 0);
    EXPECT_THAT(own.text, HasSubstr("Example"));
  }
  EXPECT_EQ(run("--version").status, 0);
}

TEST_F(Command, WrongUseIsTwo) {
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("replya x").status, 2);
  EXPECT_EQ(run("replay").status, 2);
  EXPECT_EQ(run("replay --passes 0 " + kTiny).status, 2);
  const Output allocator = run("replay --allocator gapless,jemalloc " + kTiny);
  EXPECT_EQ(allocator.status, 2);
  EXPECT_THAT(allocator.text, HasSubstr("there is no allocator \"jemalloc\""));
  const Output capacity = run("replay --capacity huge " + kTiny);
  EXPECT_EQ(capacity.status, 2);
  EXPECT_THAT(capacity.text, HasSubstr("--capacity: \"huge\""));
  const Output profile = run("replay --profile h9000 " + kTiny);
  EXPECT_EQ(profile.status, 2);
  EXPECT_THAT(profile.text, HasSubstr("h9000"));
  const Output settings = run("replay --conf slak:1 " + kTiny);
  EXPECT_EQ(settings.status, 2);
  EXPECT_THAT(settings.text, HasSubstr("\"slack\""));
}

TEST_F(Command, BadFilesAreNamedWithPlaceAndCause) {
  const Output absent = run("replay " + folder.file("absent.pickle"));
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.text, HasSubstr("absent.pickle: No such file"));
  const std::string code = write("code.pickle", std::string("\x80\x04") + "cos\nsystem\n.");
  for (const std::string command : {"replay ", "fit ", "inspect ", "convert "}) {
    const Output refused = run(command + code);
    EXPECT_EQ(refused.status, 2) << command;
    EXPECT_THAT(refused.text, HasSubstr("code.pickle: byte 2"));
    EXPECT_THAT(refused.text, HasSubstr("GLOBAL"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("code.gtrace")));
  const std::string text = write("notes.txt", "hello");
  EXPECT_EQ(run("inspect " + text).status, 2);
  // One bad file among good ones stops before any work, and loses nothing.
  const Output both = run("replay " + kTiny + " " + text);
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.text, Not(HasSubstr("gapless  ")));
}

TEST_F(Command, ReplayPrintsATable) {
  const Output output = run("replay " + kTiny);
  EXPECT_EQ(output.status, 0);
  for (const char* word : {"tiny", "gapless", "native", "expandable", "overhead", "stalls"}) {
    EXPECT_THAT(output.text, HasSubstr(word));
  }
  EXPECT_THAT(output.text, Not(HasSubstr("\x1b[")));  // no colour into a pipe
}

TEST_F(Command, ReplayJsonHasEveryField) {
  const Output output = run("replay --json --passes 5 " + kTiny + " " + kSmall);
  ASSERT_EQ(output.status, 0) << output.text;
  const json rows = json::parse(output.text);
  ASSERT_EQ(rows.size(), 6U);
  for (const json& row : rows) {
    for (const char* field :
         {"trace", "device", "allocator", "events", "peak_allocated_bytes", "peak_reserved_bytes",
          "overhead_percent", "driver_calls", "last_pass_driver_calls", "host_syncs", "driver_ns",
          "ns_per_op", "fits"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    EXPECT_EQ(row["fits"], true);
    EXPECT_GE(row["peak_reserved_bytes"], row["peak_allocated_bytes"]);
    EXPECT_GT(row["driver_ns"], 0);
  }
  EXPECT_EQ(rows[0]["allocator"], "gapless");
  EXPECT_EQ(rows[0]["last_pass_driver_calls"], 0);
  EXPECT_EQ(rows[1]["peak_reserved_bytes"], 3781165056U);  // as recorded
}

TEST_F(Command, ReplayIsThreeWhereSomethingDoesNotFit) {
  const Output output = run("replay --json --capacity 3300MiB " + kTiny);
  EXPECT_EQ(output.status, 3);
  const json rows = json::parse(output.text);
  EXPECT_EQ(rows[0]["fits"], true);
  EXPECT_EQ(rows[1]["fits"], false);
  EXPECT_GT(rows[1]["failed_bytes"], 0);
}

TEST_F(Command, ProfilesChangeCosts) {
  const std::string profile =
      write("card.json", R"({"name": "card", "calls": {"mem_create": {"fixed_ns": 1000}}})");
  const auto ns = [&](const std::string& name) {
    const Output output = run("replay --json --allocator gapless --profile " + name + " " + kTiny);
    return json::parse(output.text)[0];
  };
  const json card = ns(profile);
  EXPECT_EQ(card["driver_ns"], 1000 * card["driver_calls_by_kind"]["mem_create"].get<int>());
  EXPECT_EQ(ns("free")["driver_ns"], 0);
  EXPECT_GT(ns("a100")["driver_ns"], ns("desktop")["driver_ns"]);
}

TEST_F(Command, FitFindsTheLeastCapacity) {
  const Output output = run("fit --json " + kTiny);
  ASSERT_EQ(output.status, 0) << output.text;
  const json rows = json::parse(output.text);
  ASSERT_EQ(rows.size(), 3U);
  const auto least = rows[0]["min_capacity_bytes"].get<std::uint64_t>();
  EXPECT_GE(least, rows[0]["peak_allocated_bytes"]);
  EXPECT_LT(least, rows[1]["min_capacity_bytes"]);
  const std::string at = std::to_string(least);
  EXPECT_EQ(run("replay --allocator gapless --passes 1 --capacity " + at + " " + kTiny).status, 0);
  const std::string below = std::to_string(least - (2 << 20));
  EXPECT_EQ(run("replay --allocator gapless --passes 1 --capacity " + below + " " + kTiny).status,
            3);
}

TEST_F(Command, GenerateConvertAndReplayWorkTogether) {
  const std::string made = folder.file("moe.gtrace");
  EXPECT_EQ(run("generate moe --steps 3 -o " + made).status, 0);
  const std::string again = folder.file("again.gtrace");
  EXPECT_EQ(run("convert " + made + " --note 'from a test' -o " + again).status, 0);
  EXPECT_EQ(run("convert " + made).status, 2);  // would overwrite itself
  const Output output = run("replay --json --allocator gapless " + again);
  ASSERT_EQ(output.status, 0) << output.text;
  EXPECT_EQ(json::parse(output.text)[0]["trace"], "moe");
  EXPECT_EQ(run("generate dreams").status, 2);
  EXPECT_EQ(run("generate moe --batch 16 -o " + made).status, 2);
}

TEST_F(Command, GenerateMakesAProgramLarger) {
  const auto peak = [&](const std::string& flags) {
    const std::string made = folder.file("varlen.gtrace");
    EXPECT_EQ(run("generate varlen --steps 2 -o " + made + flags).status, 0);
    const Output output = run("replay --json --allocator native " + made);
    return json::parse(output.text)[0]["peak_allocated_bytes"].get<std::uint64_t>();
  };
  EXPECT_GT(peak(" --batch 16"), peak("") * 3 / 2);
}

TEST_F(Command, InspectExplainsASnapshot) {
  const Output output = run("inspect " GAPLESS_SNAPSHOT);
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("largest request that would succeed"));
  const json found = json::parse(run("inspect --json --blocks 3 " GAPLESS_SNAPSHOT).text);
  EXPECT_EQ(found["total"]["reserved_bytes"], 3781165056U);
  EXPECT_EQ(found["biggest_blocks"].size(), 3U);
  std::uint64_t holes = 0;
  for (const json& size : found["holes"]) holes += size["bytes"].get<std::uint64_t>();
  EXPECT_EQ(found["total"]["free_bytes"], holes);
  const Output trace = run("inspect " + kTiny);
  EXPECT_EQ(trace.status, 2);
  EXPECT_THAT(trace.text, HasSubstr("is a trace"));
}

TEST_F(Command, OptionsListsThem) {
  EXPECT_THAT(run("options").text, HasSubstr("page_size"));
  const json list = json::parse(run("options --json").text);
  EXPECT_EQ(list[0]["name"], "page_size");
  EXPECT_EQ(list[0]["default"], "2MiB");
}

}  // namespace
