// `gapless view`: what it writes, where, and what it says.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/base/files.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/run_command.h"

namespace {

using gapless::read_file;
using gapless::ScratchFolder;
using gapless::write_file;
using gapless::testing::Output;
using gapless::testing::quoted;
using gapless::testing::run;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kTiny = std::string(GAPLESS_TRACES) + "/tiny.gtrace";

TEST(View, WritesAPageBesideItsCaller) {
  const ScratchFolder folder;
  // The command runs in another folder: its name is told from the trace's.
  const Output output = run("view " + kTiny + " -o " + folder.path());
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("tiny.html: 1 trace, "));
  EXPECT_THAT(read_file(folder.file("tiny.html")), StartsWith("<!doctype html>"));
}

TEST(View, TellsWhatItWroteAsJson) {
  const ScratchFolder folder;
  const std::string page = folder.file("two.html");
  const Output output = run("view " + kTiny + " " + GAPLESS_SNAPSHOT + " --json -o " + page);
  ASSERT_EQ(output.status, 0) << output.text;
  const json told = json::parse(output.text);
  EXPECT_EQ(told["output"], page);
  EXPECT_EQ(told["output_bytes"], std::filesystem::file_size(page));
  ASSERT_EQ(told["traces"].size(), 2U);
  const json converted =
      json::parse(run("convert " + kTiny + " --json -o " + folder.file("t.gtrace")).text);
  const json& device = converted[0]["devices"][0];
  EXPECT_EQ(told["traces"][0]["events"], device["events"]);
  EXPECT_EQ(told["traces"][0]["blocks"], device["blocks"]);
  EXPECT_EQ(told["traces"][0]["peak_allocated_bytes"], device["peak_allocated_bytes"]);
  EXPECT_TRUE(told["traces"][1]["peak_reserved_bytes"].is_number());
}

TEST(View, WritesToStandardOutput) {
  const Output output = run("view " + kTiny + " -o -", "2>/dev/null");
  EXPECT_EQ(output.status, 0);
  EXPECT_THAT(output.text, StartsWith("<!doctype html>"));
  EXPECT_THAT(output.text, HasSubstr("</html>"));
  EXPECT_EQ(run("view " + kTiny + " -o - --json").status, 2);
  EXPECT_EQ(run("view " + kTiny + " -o - --open").status, 2);
}

TEST(View, NeverOverwritesATrace) {
  const ScratchFolder folder;
  const std::string trace = folder.file("run.html");  // a bad name, but somebody's recording
  write_file(trace, read_file(kTiny));
  for (const std::string& where : {trace, folder.path()}) {
    const Output output = run("view " + trace + " -o " + where);
    EXPECT_EQ(output.status, 2);
    EXPECT_THAT(output.text, HasSubstr("would be overwritten"));
  }
  EXPECT_EQ(read_file(trace), read_file(kTiny));
}

TEST(View, TellsOfABadFileAndShowsTheOthers) {
  const ScratchFolder folder;
  write_file(folder.file("bad.pickle"), "no pickle");
  const std::string page = folder.file("page.html");
  const Output output = run("view " + folder.file("bad.pickle") + " " + kTiny + " -o " + page);
  EXPECT_EQ(output.status, 2);
  EXPECT_THAT(output.text, HasSubstr("bad.pickle: "));
  EXPECT_TRUE(std::filesystem::exists(page));
  const std::string none = folder.file("none.html");
  EXPECT_EQ(run("view " + folder.file("bad.pickle") + " -o " + none).status, 2);
  EXPECT_FALSE(std::filesystem::exists(none));
}

TEST(View, OpensTheBrowserThatIsNamed) {
  const ScratchFolder folder;
  const std::string page = folder.file("a b.html");
  const std::string browser = folder.file("browser");
  write_file(browser, "#!/bin/sh\nprintf '%s' \"$1\" > " + folder.file("opened.new") + " && mv " +
                          folder.file("opened.new") + " " + folder.file("opened") + "\n");
  std::filesystem::permissions(browser, std::filesystem::perms::owner_all);
  setenv("BROWSER", browser.c_str(), 1);
  const Output output = run("view " + kTiny + " --open -o " + quoted(page));
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("opened " + page + " with " + browser));
  for (int i = 0; i < 500 && !std::filesystem::exists(folder.file("opened")); ++i) {
    usleep(10000);  // the browser starts while the command ends
  }
  EXPECT_EQ(read_file(folder.file("opened")), page);
  setenv("BROWSER", "/nowhere/browser", 1);
  const Output failed = run("view " + kTiny + " --open -o " + quoted(page));
  EXPECT_EQ(failed.status, 2);
  EXPECT_THAT(failed.text, HasSubstr("cannot start /nowhere/browser: No such file"));
  unsetenv("BROWSER");
}

}  // namespace
