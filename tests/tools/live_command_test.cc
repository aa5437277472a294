// gapless top, record and dump, as somebody calls them beside a program that runs.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/base/files.h"
#include "allocator/trace/load.h"
#include "tests/support/running_process.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/run_command.h"
#include "tools/text_width.h"
#include "tools/top/prometheus.h"
#include "tools/top/top_screen.h"

namespace {

using gapless::GiB;
using gapless::MiB;
using gapless::testing::Output;
using gapless::testing::run;
using gapless::testing::RunningProcess;
using gapless::tools::DeviceState;
using gapless::tools::ProcessState;
using gapless::tools::TopScreen;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LiveCommands, TopShowsWhoHasWhat) {
  const RunningProcess process;
  const std::string pid = std::to_string(process.pid());
  const Output text = run("top --once " + pid);
  EXPECT_EQ(text.status, 0) << text.text;
  EXPECT_THAT(text.text, HasSubstr("PID " + pid));
  EXPECT_THAT(text.text, HasSubstr("GPU 1"));
  EXPECT_THAT(text.text, Not(HasSubstr("GPU 0")));  // of which it has nothing
  EXPECT_THAT(text.text, HasSubstr("of 1.00 GiB"));
  EXPECT_THAT(text.text, HasSubstr("allocations/s"));
  EXPECT_THAT(text.text, HasSubstr("streams: 0 "));
  const Output all = run("top --once --json", "2>/dev/null");
  bool found = false;
  const json processes = json::parse(all.text)["processes"];
  for (const json& one : processes) {
    if (one["pid"] != process.pid()) continue;
    found = true;
    EXPECT_GE(one["devices"][1]["allocated_bytes"]["now"], 8 * MiB);
    EXPECT_GT(one["devices"][1]["allocations_per_second"], 0);
    EXPECT_TRUE(one["problem"].is_null());
  }
  EXPECT_TRUE(found) << all.text;
}

TEST(LiveCommands, AFileForPrometheus) {
  const gapless::ScratchFolder folder;
  const RunningProcess process;
  const std::string pid = std::to_string(process.pid());
  EXPECT_EQ(run("top --once --prometheus " + folder.file("g.prom") + " " + pid).text, "");
  EXPECT_THAT(gapless::read_file(folder.file("g.prom")),
              HasSubstr("gapless_capacity_bytes{pid=\"" + pid));
  const Output refused = run("top --once --prometheus " + folder.file("no/g.prom"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.text, HasSubstr("no/g.prom"));
}

TEST(LiveCommands, RecordAndDump) {
  const gapless::ScratchFolder folder;
  const RunningProcess process;
  const std::string pid = std::to_string(process.pid());
  const std::string file = folder.file("run.gtrace");
  const Output recorded = run("record --pid " + pid + " --seconds 0.3 -o " + file);
  EXPECT_EQ(recorded.status, 0) << recorded.text;
  EXPECT_THAT(recorded.text, HasSubstr("events in " + file));
  EXPECT_GT(gapless::load_traces(file).at(1).events.size(), 2U);
  const Output again = run("record --pid " + pid + " --seconds 0.3 -o " + file);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.text, HasSubstr("File exists"));
  EXPECT_EQ(run("record --detach --pid " + pid + " -o " + folder.file("2.gtrace")).status, 0);
  EXPECT_EQ(json::parse(run("record --stop --json --pid " + pid).text)["lost"], 0);
  EXPECT_EQ(run("dump --pid " + pid + " -o " + folder.file("now.json")).status, 0);
  EXPECT_THAT(run("inspect " + folder.file("now.json")).text, HasSubstr("MiB is reserved"));
}

TEST(LiveCommands, WhoCannotBeAskedIsNamed) {
  constexpr const char* kNobody = "4194303";  // above what Linux numbers processes up to
  for (const std::string command : {"record --pid ", "dump --pid ", "top --once "}) {
    const Output output = run(command + kNobody);
    EXPECT_EQ(output.status, 2) << command;
    EXPECT_THAT(output.text, HasSubstr(std::string("process ") + kNobody + ": there is none"));
  }
  for (const std::string words : {"record", "dump", "record --pid 1 --stop --detach",
                                  "top --interval 0", "record --pid -3"}) {
    EXPECT_EQ(run(words).status, 2) << words;
  }
}

ProcessState somebody() {
  DeviceState device;
  device.total_bytes = 16 * GiB;
  device.allocated_bytes = 6 * GiB;
  device.reserved_bytes = 8 * GiB;
  device.streams = {{"0", 6 * GiB}, {"\x1b[31m7", 1}};
  ProcessState process;
  process.pid = 4711;
  process.command = std::string("python \x1b[2Jtrain.py \"a\\b\" ") + std::string(200, 'x');
  process.devices = {device};
  process.when = std::chrono::steady_clock::now();
  process.answer = json::object();
  return process;
}

TEST(TopScreen, FitsTheTerminalAndShowsWhatTextsHold) {
  for (const std::size_t columns : {20U, 40U, 80U, 200U}) {
    TopScreen screen;
    (void)screen.text({somebody()}, columns, false);
    const std::string text = screen.text({somebody()}, columns, false);
    for (const std::string& line : gapless::tools::lines_of(text, 100000)) {
      EXPECT_LE(gapless::tools::columns_of(line), std::max<std::size_t>(columns, 27)) << line;
    }
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  }
}

TEST(TopScreen, RatesComeOfTwoLooks) {
  TopScreen screen;
  ProcessState process = somebody();
  process.devices[0].allocations = 1000;
  (void)screen.text({process}, 80, false);
  EXPECT_FALSE(screen.rate_of(4711, 0).has_value());
  process.when += std::chrono::seconds(2);
  process.devices[0].allocations = 1500;
  EXPECT_THAT(screen.text({process}, 80, false), HasSubstr("250 allocations/s"));
}

TEST(Prometheus, LabelsAreQuoted) {
  const std::string text = gapless::tools::prometheus_text({somebody()});
  EXPECT_THAT(text, HasSubstr("command=\"python \x1b[2Jtrain.py \\\"a\\\\b\\\" "));
  EXPECT_THAT(text, HasSubstr("gpu=\"0\"} 6442450944\n"));
}

}  // namespace
