// What comes from outside, through every command: names that a terminal would obey or that are not
// UTF-8, outputs that are no regular files, files whose values no GPU serves.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "allocator/base/bytes.h"
#include "allocator/base/files.h"
#include "allocator/trace/compact_format.h"
#include "tests/support/opened_trace.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/run_command.h"
#include "tests/unit/pickle_writer.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Output;
using testing::quoted;
using testing::run;
using ::testing::StartsWith;

// Clears the screen, ends the line, turns the direction of text, sets a title by C1, is not UTF-8.
const std::string kEvil = "\x1b[2Jevil\r\n\xe2\x80\xae\xc2\x9d\x7f\xff";
const std::string kShown = R"(\x1b[2Jevil\r\n\u202e\u009d\x7f\xff)";

MATCHER(IsOnlyShown, "") {
  for (std::size_t i = 0; i < arg.size(); ++i) {
    const auto byte = static_cast<unsigned char>(arg[i]);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f || byte == 0xff) return false;
    const bool c1 =
        byte == 0xc2 && i + 1 < arg.size() && static_cast<unsigned char>(arg[i + 1]) < 0xa0;
    if (c1 || arg.substr(i, 3) == "\xe2\x80\xae") return false;
  }
  return true;
}

class Outside : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder.file(name), std::ios::binary) << bytes;
    return folder.file(name);
  }
  // Of two allocations, one freed; every text in it is evil.
  std::string snapshot() {
    testing::PickleWriter writer;
    const auto frames = [&] {
      writer.text("frames").list().dict().mark().text("filename").text(kEvil + ".py");
      writer.text("line").integer(3).text("name").text(kEvil).set_items().append();
    };
    writer.dict().mark().text("segments").list().dict().mark();
    writer.text("address").integer(4096).text("total_size").integer(512);
    writer.text("segment_type").text(kEvil).text("blocks").list().dict().mark();
    writer.text("size").integer(512).text("state").text("active_allocated");
    frames();
    writer.set_items().append().set_items().append().text("device_traces").list().list();
    writer.dict().mark().text("action").text("alloc").text("addr").integer(8192);
    writer.text("size").integer(512);
    frames();
    writer.set_items().append().append().set_items();
    return write(kEvil + ".pickle", writer.stop());
  }
  // The same as a compact trace; only the name of its file cannot be evil.
  std::string trace() {
    Trace trace;
    trace.name = "NAME";
    trace.source = "SOURCE";
    trace.warnings = {"WARNING"};
    trace.pools = {"default", "POOL"};
    trace.sites = {"", "SITE"};
    trace.events = {{.pool = 1, .bytes = 512, .site = 1}};
    trace.blocks = 1;
    testing::OpenedTrace opened = testing::OpenedTrace::open(write_compact({trace}));
    for (const char* word : {"NAME", "SOURCE", "WARNING", "POOL", "SITE"}) {
      opened.change_header(word, R"(\u001b[2Jevil\r\n\u202e\u009d\u007f)");
    }
    return write("evil.gtrace", opened.close());
  }
  ScratchFolder folder;
};

TEST_F(Outside, NoTextOfAFileIsObeyed) {
  const std::string from_pickle = quoted(snapshot());
  const std::string from_trace = quoted(trace());
  const std::string into = " -o " + quoted(folder.file(kEvil + ".gtrace"));
  for (const std::string& arguments :
       {"inspect " + from_pickle, "replay -n 1 " + from_pickle, "replay -n 1 " + from_trace,
        "fit " + from_pickle, "fit " + from_trace, "convert " + from_pickle,
        "convert " + from_trace + into, "generate moe --steps 1 " + into}) {
    const Output output = run(arguments);
    EXPECT_EQ(output.status, 0) << output.text;
    EXPECT_THAT(output.text, IsOnlyShown()) << arguments;
    EXPECT_THAT(output.text, HasSubstr(kShown.substr(0, kShown.size() - 4))) << arguments;
  }
  EXPECT_THAT(run("inspect " + from_pickle).text, HasSubstr(kShown + ".py:3 " + kShown));
}

TEST_F(Outside, JsonIsJsonWhateverTheNames) {
  const std::string from_pickle = quoted(snapshot());
  const std::string from_trace = quoted(trace());
  for (const std::string& arguments :
       {"inspect --json " + from_pickle, "replay -n 1 --json " + from_pickle,
        "replay -n 1 --json " + from_trace, "fit --json " + from_pickle,
        "fit --json " + from_trace}) {
    const Output output = run(arguments, "2>/dev/null");
    ASSERT_EQ(output.status, 0) << output.text;
    EXPECT_THAT(output.text, IsOnlyShown()) << arguments;
    const json found = json::parse(output.text);
    const std::string name = found[0][found[0].contains("dump") ? "dump" : "trace"];
    EXPECT_THAT(name, StartsWith("\x1b[2Jevil\r\n\xe2\x80\xae")) << arguments;
  }
  const json found = json::parse(run("inspect --json " + from_pickle).text);
  EXPECT_THAT(found[0]["biggest_blocks"][0]["site"].get<std::string>(),
              HasSubstr("\xef\xbf\xbd.py"));
}

TEST_F(Outside, ConvertedNamesAreUtf8) {
  const std::string made = folder.file("made.gtrace");
  ASSERT_EQ(run("convert " + quoted(snapshot()) + " -o " + made).status, 0);
  const std::vector<Trace> traces = read_compact(read_file(made), made);
  EXPECT_EQ(traces[0].sites[1],
            "\x1b[2Jevil\r\n\xe2\x80\xae\xc2\x9d\x7f\xef\xbf\xbd.py:3 "
            "\x1b[2Jevil\r\n\xe2\x80\xae\xc2\x9d\x7f\xef\xbf\xbd");
}

TEST_F(Outside, NoNameInAnErrorIsObeyed) {
  const std::string evil = quoted(kEvil);
  const std::string bad = quoted(write(kEvil, "hello"));
  const std::string small = quoted(trace());
  for (const std::string& arguments : {evil,
                                       "--" + evil,
                                       "replay " + evil,
                                       "replay " + bad,
                                       "fit " + bad,
                                       "inspect " + bad,
                                       "convert " + bad,
                                       "replay --" + evil,
                                       "replay -n " + evil + " " + small,
                                       "replay -a " + evil + " " + small,
                                       "replay -c " + evil + " " + small,
                                       "replay -p " + evil + " " + small,
                                       "replay --conf " + evil + " " + small,
                                       "replay --conf window_factor:" + evil + " " + small,
                                       "fit --conf " + evil + " " + small,
                                       "convert " + small + " -o " + evil + "/" + evil,
                                       "generate " + evil,
                                       "generate moe -o " + evil + "/" + evil,
                                       "generate moe --steps " + evil,
                                       "run -- " + evil,
                                       "run --conf " + evil + " -- true",
                                       "dryrun --gpu " + evil + " -- true",
                                       "dryrun --context " + evil + " -- true",
                                       "dryrun --allocator " + evil + " -- true",
                                       "options " + evil}) {
    const Output output = run(arguments);
    EXPECT_EQ(output.status, 2) << arguments << output.text;
    EXPECT_THAT(output.text, IsOnlyShown()) << arguments;
  }
  EXPECT_THAT(run("replay " + evil).text, HasSubstr(kShown + ": No such file"));
  EXPECT_THAT(run("replay -a " + evil + " " + small).text, HasSubstr("\"" + kShown + "\""));
  const std::string profile = write("card.json", "{\"calls\": {\"\\u001b[2Jevil\": {}}}");
  EXPECT_THAT(run("replay -p " + profile + " " + small).text, HasSubstr(R"("\x1b[2Jevil")"));
}

TEST_F(Outside, ALinkUnderAGuessedNameIsNotFollowed) {
  const std::string victim = write("victim", "precious");
  const std::string out = folder.file("out.gtrace");
  fs::create_symlink(victim, out + ".part");
  ASSERT_EQ(run("convert " + trace() + " -o " + out).status, 0);
  EXPECT_EQ(read_file(victim), "precious");
  EXPECT_TRUE(fs::is_symlink(out + ".part"));
  EXPECT_THAT(run("replay " + out).text, HasSubstr("evil"));
}

TEST_F(Outside, StandardOutputAndPipesAreWrittenTo) {
  const std::string made = folder.file("made.gtrace");
  ASSERT_EQ(run("generate moe --steps 2 -o " + made).status, 0);
  const std::string file = folder.file("file.gtrace");
  for (const std::string into : {" > ", " | cat > "}) {
    ASSERT_EQ(run("convert " + made + " -o /dev/stdout 2>/dev/null" + into + file, "").status, 0);
    EXPECT_EQ(run("replay -n 1 " + file).status, 0);
  }
  const Output piped =
      run("generate moe --steps 2 -o /dev/stdout 2>/dev/null | " + std::string(GAPLESS_COMMAND) +
          " replay --json -n 1 -a native /dev/stdin");
  EXPECT_EQ(piped.status, 0) << piped.text;
  EXPECT_THAT(piped.text, HasSubstr("\"fits\": true"));
  const std::string null = folder.device(3);
  if (null.empty()) GTEST_SKIP() << "only root makes devices";
  EXPECT_EQ(run("convert " + made + " -o " + null).status, 0);
  EXPECT_TRUE(fs::is_character_file(null));
}

TEST_F(Outside, AFileThatMayNotGrowIsAnErrorThatLeavesNothing) {
  const std::string made = folder.file("made.gtrace");
  const Output output = run("options > /dev/null; ulimit -f 1; " + std::string(GAPLESS_COMMAND) +
                            " generate moe --steps 20 -o " + made);
  EXPECT_EQ(output.status, 2);
  EXPECT_THAT(output.text, HasSubstr("made.gtrace: File too large"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// --- what no GPU serves --------------------------------------------------------------------------

class NoGpu : public Outside {
 protected:
  std::string asking(std::uint64_t bytes) {
    Trace trace;
    trace.name = "huge";
    trace.events = {{.bytes = bytes}};
    trace.blocks = 1;
    return write("huge.gtrace", write_compact({trace}));
  }
};

TEST_F(NoGpu, ReplayAndFitSayThatNoneServesIt) {
  for (const std::uint64_t bytes : {TiB + 1, 2 * TiB, 1024 * TiB}) {
    const std::string file = asking(bytes);
    const Output replayed = run("replay " + file);
    EXPECT_EQ(replayed.status, 3);
    EXPECT_THAT(replayed.text, HasSubstr("more than any GPU has"));
    const Output fitted = run("fit " + file);
    EXPECT_EQ(fitted.status, 3);
    EXPECT_THAT(fitted.text, HasSubstr("more than 1024.00 GiB"));
    const json rows = json::parse(run("fit --json " + file).text);
    ASSERT_EQ(rows.size(), 3U);
    for (const json& row : rows) {
      EXPECT_TRUE(row["min_capacity_bytes"].is_null());
      EXPECT_TRUE(row["over_percent"].is_null());
      EXPECT_EQ(row["peak_allocated_bytes"], align_up(bytes, 512));
    }
  }
  const Output capacity = run("replay --capacity 2TiB " + asking(512));
  EXPECT_EQ(capacity.status, 2);
  EXPECT_THAT(capacity.text, HasSubstr("none has more than 1024.00 GiB"));
}

TEST_F(NoGpu, TheLargestGpuIsSimulated) {
  const std::string file = asking(900 * GiB);
  const json rows = json::parse(run("fit --json " + file).text);
  for (const json& row : rows) {
    EXPECT_GE(row["min_capacity_bytes"], 900 * GiB);
    EXPECT_LE(row["min_capacity_bytes"], 901 * GiB);
  }
}

}  // namespace
}  // namespace gapless
