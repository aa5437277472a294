// gapless convert from and to every format, and that one bad file among many stops no other.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/trace/compact_format.h"
#include "bench/replay/synthetic.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/run_command.h"

namespace {

namespace fs = std::filesystem;
using gapless::ScratchFolder;
using gapless::Trace;
using gapless::testing::Output;
using gapless::testing::run;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kRmm =
    "Thread,Time,Action,Pointer,Size,Stream\n"
    "1,15:47:02.841961,allocate,0x7f0010000000,1048576,0\n"
    "1,15:47:02.841970,allocate,0x7f0010100000,4096,0x2\n"
    "1,15:47:02.841977,free,0x7f0010000000,1048576,0\n"
    "1,15:47:02.841999,allocate failure,(nil),99999999999,0\n";
constexpr const char* kBuffers = "id,lower,upper,size,offset\nb1,0,3,4096,8192\nb2,3,9,512,0\n";

class Convert : public ::testing::Test {
 protected:
  Convert() {
    fs::copy_file(GAPLESS_SNAPSHOT, folder.file("run.pickle"));
    write("log.csv", kRmm);
    write("buffers.csv", kBuffers);
    write("notes.txt", "hello");
  }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name), std::ios::binary) << text;
    return folder.file(name);
  }
  std::string text(const std::string& name) {
    std::ifstream file(folder.file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The names of the files, one after another, as a shell takes them.
  std::string files(const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += folder.file(name) + " ";
    return all;
  }
  ScratchFolder folder;
};

TEST_F(Convert, TheEndingSaysTheFormat) {
  const std::pair<const char*, const char*> endings[] = {
      {"a.gtrace", "GAPLESS"},
      {"a.pickle", "\x80\x04"},
      {"a.pkl", "\x80\x04"},
      {"a.csv", "id,lower,upper,size,offset\n"},
      {"a.perfetto.json", "{\"dis"},
      {"a.json", "{\"displayTimeUnit\""},
      {"a.speedscope.json", "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\""},
      {"a.else", "GAPLESS"}};
  for (const auto& [name, begin] : endings) {
    const Output done = run("convert " + files({"run.pickle"}) + "-o " + folder.file(name));
    EXPECT_EQ(done.status, 0) << done.text;
    EXPECT_EQ(text(name).substr(0, std::string(begin).size()), begin) << name;
  }
  // --to says it whatever the ending, and names the file where nothing else does.
  EXPECT_EQ(run("convert " + files({"run.pickle"}) + "--to minimalloc -o " + folder.file("b.json"))
                .status,
            0);
  EXPECT_THAT(text("b.json"), ::testing::StartsWith("id,lower"));
  EXPECT_EQ(run("convert " + files({"run.pickle"}) + "--to speedscope").status, 0);
  EXPECT_EQ(json::parse(text("run.speedscope.json"))["profiles"].size(), 2U);
  EXPECT_EQ(run("convert " + files({"run.pickle"}) + "--to svg").status, 2);
}

TEST_F(Convert, ThereAndBackIsWhatItWas) {
  const auto convert = [&](const std::string& from, const std::string& to) {
    const Output done = run("convert " + folder.file(from) + " -o " + folder.file(to));
    EXPECT_EQ(done.status, 0) << done.text;
  };
  convert("run.pickle", "1.gtrace");
  convert("1.gtrace", "2.pickle");
  convert("2.pickle", "1b.gtrace");
  const auto read = [&](const std::string& name) {
    return gapless::read_compact(text(name), name).at(0);
  };
  const Trace before = read("1.gtrace");
  const Trace after = read("1b.gtrace");
  EXPECT_EQ(before.events, after.events);
  EXPECT_EQ(before.segments, after.segments);
  EXPECT_EQ(before.sites, after.sites);
  for (std::uint32_t site = 0; site < before.sites.size(); ++site) {
    EXPECT_EQ(before.frames_of(site), after.frames_of(site));
  }
  convert("buffers.csv", "b.gtrace");
  convert("b.gtrace", "again.csv");
  EXPECT_EQ(text("again.csv"), kBuffers);
  convert("log.csv", "log.gtrace");
  EXPECT_EQ(read("log.gtrace").events.size(), 4U);
}

TEST_F(Convert, WritesAFileForEachDeviceWhereAFormatHoldsOne) {
  std::vector<Trace> traces = {gapless::bench::synthetic_trace("moe", {.steps = 1}),
                               gapless::bench::synthetic_trace("moe", {.steps = 2})};
  traces[1].device = 3;
  write("two.gtrace", gapless::write_compact(traces));
  const Output done = run("convert --json " + files({"two.gtrace"}) + "--to minimalloc", "2>&1");
  ASSERT_EQ(done.status, 0) << done.text;
  EXPECT_EQ(json::parse(done.text)[0]["outputs"],
            json({folder.file("two-gpu0.csv"), folder.file("two-gpu3.csv")}));
  EXPECT_LT(text("two-gpu0.csv").size(), text("two-gpu3.csv").size());
  EXPECT_FALSE(fs::exists(folder.file("two.csv")));
  const Output piped = run("convert " + files({"two.gtrace"}) + "--to minimalloc -o /dev/null");
  EXPECT_EQ(piped.status, 2);
  EXPECT_THAT(piped.text, HasSubstr("holds 2 devices, which take a file each"));
  const Output pickled = run("convert " + files({"two.gtrace"}) + "--to pickle");
  EXPECT_THAT(pickled.text, HasSubstr("note: gpu 3: segments and addresses were not recorded"));
  const Output again = run("convert --json " + files({"two.pickle"}) + "--to perfetto");
  EXPECT_EQ(json::parse(again.text)[0]["devices"][1]["device"], 3);
}

TEST_F(Convert, WritesAFileForEachOfSeveralProcessesOnADevice) {
  const std::vector<Trace> traces = {gapless::bench::synthetic_trace("moe", {.steps = 1}),
                                     gapless::bench::synthetic_trace("moe", {.steps = 2})};
  write("two.gtrace", gapless::write_compact(traces));
  const Output done = run("convert --json " + files({"two.gtrace"}) + "--to minimalloc", "2>&1");
  ASSERT_EQ(done.status, 0) << done.text;
  EXPECT_EQ(json::parse(done.text)[0]["outputs"],
            json({folder.file("two-gpu0.csv"), folder.file("two-gpu0-2.csv")}));
  EXPECT_LT(text("two-gpu0.csv").size(), text("two-gpu0-2.csv").size());
}

TEST_F(Convert, OverwritesNothingThatIsToBeRead) {
  const std::string before = text("log.csv");
  EXPECT_THAT(run("convert " + files({"log.csv"}) + "--to minimalloc").text,
              HasSubstr("log.csv: would be overwritten"));
  const Output other = run("convert " + files({"run.pickle"}) + "-o " + folder.file("run.pickle"));
  EXPECT_EQ(other.status, 2);
  // Nor what is another of them.
  fs::create_directory(folder.file("in"));
  fs::copy_file(folder.file("run.pickle"), folder.file("in/log.pickle"));
  const Output over =
      run("convert " + files({"in/log.pickle", "log.csv"}) + "--to minimalloc -o " + folder.path());
  EXPECT_EQ(over.status, 2);
  EXPECT_THAT(over.text, HasSubstr("in/log.pickle: would overwrite " + folder.file("log.csv")));
  EXPECT_EQ(text("log.csv"), before);
}

TEST_F(Convert, OneBadFileAmongManyStopsNoOther) {
  write("cut.csv", std::string(kRmm) + "1,15:47");
  write("bad.csv", "id,lower,upper,size\nb,9,3,1\n");
  const std::string all =
      files({"notes.txt", "run.pickle", "cut.csv", "log.csv", "bad.csv", "buffers.csv"});
  const auto told = [](const Output& output) {
    EXPECT_THAT(output.text, HasSubstr("notes.txt: byte 0"));
    EXPECT_THAT(output.text, HasSubstr("cut.csv: line 6: the file is cut off"));
    EXPECT_THAT(output.text, HasSubstr("bad.csv: line 2: the buffer ends before it begins"));
  };
  fs::create_directory(folder.file("out"));
  for (const std::string format : {"gtrace", "pickle", "minimalloc", "perfetto", "speedscope"}) {
    const std::string to = "--to " + format + " -o " + folder.file("out");
    const Output done = run("convert " + all + to);
    EXPECT_EQ(done.status, 2);
    told(done);
    EXPECT_EQ(json::parse(run("convert --json " + all + to, "2>/dev/null").text).size(), 3U);
  }
  for (const std::string command :
       {"replay --allocator gapless ", "fit --allocator gapless ", "inspect "}) {
    const Output done = run(command + all);
    EXPECT_EQ(done.status, 2) << command;
    told(done);
    const Output good = run(command + "--json " + all, "2>/dev/null");
    EXPECT_EQ(good.status, 2) << command;
    EXPECT_EQ(json::parse(good.text).size(), 3U) << command;
  }
}

TEST_F(Convert, CallSitesMayHoldAnything) {
  Trace trace = gapless::bench::synthetic_trace("moe", {.steps = 1});
  trace.name = "\x1b[2J</script>\"";
  trace.sites = {"a,\n\"</script>\x1b]0;x\a\xff"};
  write("evil.gtrace", gapless::write_compact({trace}));
  for (const std::string format : {"pickle", "minimalloc", "perfetto", "speedscope"}) {
    const Output done = run("convert " + files({"evil.gtrace"}) + "--to " + format);
    EXPECT_EQ(done.status, 0) << done.text;
    EXPECT_EQ(done.text.find('\x1b'), std::string::npos);
  }
  EXPECT_TRUE(json::accept(text("evil.perfetto.json")));
  EXPECT_TRUE(json::accept(text("evil.speedscope.json")));
  EXPECT_EQ(run("replay --allocator gapless " + files({"evil.pickle", "evil.csv"})).status, 0);
}

}  // namespace
