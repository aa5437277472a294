// gapless replay --plot: the figures of the table, drawn in scale, and safe whatever is replayed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/trace/load.h"
#include "bench/replay/replay.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/run_command.h"
#include "tests/tools/well_formed.h"
#include "tools/replay_picture.h"

namespace gapless::tools {
namespace {

using bench::CourseColumn;
using bench::PassCourse;
using bench::ReplayResult;
using nlohmann::json;
using testing::expect_well_formed;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Output;
using testing::quoted;
using testing::run;

const std::string kTiny = GAPLESS_TRACES "/tiny.gtrace";
const std::string kSmall = GAPLESS_TRACES "/lm-small-train.gtrace";
const std::string kVarlen = GAPLESS_TRACES "/qwen-lora-varlen.gtrace";

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Each match of the pattern, with its groups.
std::vector<std::smatch> all(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), expression), std::sregex_iterator()};
}

struct DrawnLine {
  std::string allocator;
  std::uint64_t peak_reserved_bytes = 0;
  std::uint64_t peak_allocated_bytes = 0;
  bool fits = false;
  std::string style;  // colour and pattern
  double top_y = 1e9;
  double end_x = 0;
};

std::vector<DrawnLine> lines_of_picture(const std::string& svg) {
  std::vector<DrawnLine> lines;
  for (const std::smatch& found :
       all(svg,
           "<g class=\"(c\\d)\" data-allocator=\"([^\"]*)\" data-peak-reserved-bytes=\"(\\d+)\" "
           "data-peak-allocated-bytes=\"(\\d+)\" data-fits=\"(yes|no)\">\\s*<title>[^<]*"
           "</title><path class=\"line (p\\d)\"\\s*d=\"([^\"]*)\"")) {
    DrawnLine line{found[2], std::stoull(found[3]), std::stoull(found[4]), found[5] == "yes",
                   found[1].str() + found[6].str()};
    const std::string path = found[7];
    for (const std::smatch& y : all(path, "(?:V|M[0-9.]+ )([0-9.]+)")) {
      line.top_y = std::min(line.top_y, std::stod(y[1]));
    }
    for (const std::smatch& x : all(path, "H([0-9.]+)")) line.end_x = std::stod(x[1]);
    lines.push_back(line);
  }
  return lines;
}

// By its axis: bytes that a height stands for.
double bytes_at(const std::string& svg, double y) {
  std::vector<std::pair<double, double>> marks;  // y, bytes
  for (const std::smatch& found : all(svg, "y=\"([0-9.]+)\" text-anchor=\"end\">([0-9.]+) GiB<")) {
    marks.emplace_back(std::stod(found[1]) - 4, std::stod(found[2]) * static_cast<double>(GiB));
  }
  const auto [zero_y, zero] = marks.at(0);
  const auto [last_y, last] = marks.back();
  EXPECT_EQ(zero, 0);
  return last * (y - zero_y) / (last_y - zero_y);
}

class ReplayPlot : public ::testing::Test {
 protected:
  [[nodiscard]] std::string plot(const std::string& arguments, int status) const {
    const Output output = run("replay --plot " + file() + " " + arguments);
    EXPECT_EQ(output.status, status) << output.text;
    return text_of(file());
  }
  [[nodiscard]] std::string file() const { return folder.file("run.svg"); }
  ScratchFolder folder;
};

TEST_F(ReplayPlot, HasTheFiguresOfJsonInScale) {
  const Output output = run("replay --json --plot " + file() + " " + kVarlen);
  ASSERT_EQ(output.status, 0);
  const std::string svg = text_of(file());
  expect_well_formed(svg);
  const std::vector<DrawnLine> lines = lines_of_picture(svg);
  ASSERT_EQ(lines.size(), 3U);
  for (const json& row : json::parse(output.text)) {
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const DrawnLine& one) {
      return one.allocator == row["allocator"];
    });
    ASSERT_NE(line, lines.end()) << row["allocator"];
    EXPECT_EQ(line->peak_reserved_bytes, row["peak_reserved_bytes"]);
    EXPECT_EQ(line->peak_allocated_bytes, row["peak_allocated_bytes"]);
    EXPECT_EQ(line->fits, row["fits"]);
    EXPECT_NEAR(bytes_at(svg, line->top_y) / static_cast<double>(line->peak_reserved_bytes), 1,
                0.01);
    EXPECT_THAT(svg, HasSubstr(">" + format_bytes(line->peak_reserved_bytes) + ", "));
  }
  // In more than colour, and by the reader's preference.
  EXPECT_NE(lines[0].style.substr(2), lines[1].style.substr(2));
  EXPECT_NE(lines[1].style.substr(2), lines[2].style.substr(2));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(svg, HasSubstr("the first of 4 passes"));
  EXPECT_THAT(svg, Not(HasSubstr(">capacity ")));
  EXPECT_THAT(svg, Not(HasSubstr("fails")));
}

TEST_F(ReplayPlot, TakingItChangesNoFigure) {
  const auto figures = [&](const std::string& more) {
    json rows = json::parse(run("replay --json --passes 5 " + more + kSmall).text);
    for (json& row : rows) {
      for (const char* time : {"ns_per_op", "ns_per_op_p50", "ns_per_op_p99"}) row.erase(time);
    }
    return rows;
  };
  EXPECT_EQ(figures(""), figures("--plot " + file() + " "));
}

TEST_F(ReplayPlot, MarksWhereARunFailed) {
  const std::string svg = plot("--capacity 3300MiB " + kTiny, 3);
  expect_well_formed(svg);
  const json rows = json::parse(run("replay --json --capacity 3300MiB " + kTiny).text);
  const std::vector<DrawnLine> lines = lines_of_picture(svg);
  const auto crosses =
      all(svg, "<g class=\"c\\d failed\" data-allocator=\"([^\"]*)\">[^]*?translate\\(([0-9.]+)");
  std::size_t failed = 0;
  double whole = 0;
  for (const DrawnLine& line : lines) whole = std::max(whole, line.end_x);
  for (const json& row : rows) {
    const bool has_cross = std::any_of(crosses.begin(), crosses.end(), [&](const std::smatch& one) {
      return one[1] == row["allocator"].get<std::string>();
    });
    EXPECT_EQ(has_cross, !row["fits"].get<bool>()) << row["allocator"];
    if (row["fits"].get<bool>()) continue;
    ++failed;
    const double left = 70;
    const double place = left + (whole - left) * (row["failed_event"].get<double>() + 1) /
                                    row["events"].get<double>();
    EXPECT_TRUE(std::any_of(crosses.begin(), crosses.end(), [&](const std::smatch& one) {
      return std::abs(std::stod(one[2]) - place) < 1;
    })) << place;
    EXPECT_THAT(svg, HasSubstr("fails: " + format_bytes(row["failed_bytes"].get<std::uint64_t>()) +
                               " asked"));
  }
  EXPECT_EQ(failed, 1U);  // native
  EXPECT_EQ(crosses.size(), failed);
  EXPECT_THAT(svg, HasSubstr("capacity 3.22 GiB</text>"));
  EXPECT_THAT(svg, HasSubstr(" class=\"capacity\"/>"));
}

TEST_F(ReplayPlot, ACapacityFarAboveIsToldAndLeavesTheLinesTheirHeight) {
  const std::string svg = plot("--capacity 80GiB " + kTiny, 0);
  EXPECT_THAT(svg, HasSubstr("capacity 80.00 GiB, far above"));
  EXPECT_THAT(svg, Not(HasSubstr(" class=\"capacity\"/>")));
  EXPECT_NEAR(bytes_at(svg, lines_of_picture(svg).front().top_y) / static_cast<double>(GiB), 3.3,
              0.4);
}

TEST_F(ReplayPlot, EachTraceHasItsPanelAndABadOneIsTold) {
  std::string svg = plot(kTiny + " " + kSmall, 0);
  EXPECT_EQ(all(svg, "<g class=\"panel\" data-trace=\"([^\"]*)\"").size(), 2U);
  EXPECT_EQ(lines_of_picture(svg).size(), 6U);
  std::ofstream(folder.file("bad.gtrace")) << "no trace";
  const Output output =
      run("replay --plot " + file() + " " + folder.file("bad.gtrace") + " " + kTiny);
  EXPECT_EQ(output.status, 2);
  EXPECT_THAT(output.text, HasSubstr("bad.gtrace"));
  svg = text_of(file());
  expect_well_formed(svg);
  const auto panels = all(svg, "<g class=\"panel\" data-trace=\"([^\"]*)\"");
  ASSERT_EQ(panels.size(), 1U);
  EXPECT_EQ(panels[0][1], "tiny");
}

TEST_F(ReplayPlot, MarkupInNamesIsText) {
  const std::string path = folder.file("<script>\"&'\x1b[2J.pickle");
  std::filesystem::copy_file(GAPLESS_SNAPSHOT, path);
  const std::string svg = plot(quoted(path), 0);
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr(">&lt;script&gt;&quot;&amp;'\\x1b[2J"));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
}

TEST_F(ReplayPlot, SaysAtOnceWhereItCannotBeWritten) {
  for (const auto& [path, cause] :
       {std::pair<std::string, std::string>{folder.file("absent/run.svg"), "cannot be written"},
        {folder.file("run.png"), "end with .svg"}}) {
    const Output output = run("replay --plot " + path + " " + kTiny);
    EXPECT_EQ(output.status, 2);
    EXPECT_THAT(output.text, HasSubstr("--plot"));
    EXPECT_THAT(output.text, HasSubstr(cause));
    EXPECT_THAT(output.text, Not(HasSubstr("overhead")));  // nothing was replayed
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  std::filesystem::copy_file(kTiny, file());
  EXPECT_EQ(run("replay --plot " + file() + " " + file()).status, 2);
  EXPECT_EQ(text_of(file()), text_of(kTiny));
}

TEST(ReplayCourse, IsAsLongForAnyTraceAndHasItsPeaks) {
  const Trace trace = load_traces(kVarlen).at(0);
  ASSERT_GT(trace.events.size(), 100 * bench::kMostCourseColumns);
  const ReplayResult result = bench::replay(trace, "native", {.passes = 6, .keep_course = true});
  ASSERT_EQ(result.course.size(), bench::kMostCoursePasses);
  std::uint64_t reserved = 0;
  for (const PassCourse& pass : result.course) {
    EXPECT_EQ(pass.size(), bench::kMostCourseColumns);
    std::uint64_t allocated = 0;
    for (const CourseColumn& column : pass) {
      EXPECT_LE(column.allocated_bytes, column.reserved_bytes);
      allocated = std::max(allocated, column.allocated_bytes);
      reserved = std::max(reserved, column.reserved_bytes);
    }
    EXPECT_EQ(allocated, result.peak_allocated_bytes);
  }
  EXPECT_EQ(reserved, result.peak_reserved_bytes);
  EXPECT_TRUE(bench::replay(trace, "native", {}).course.empty());
}

TEST(ReplayPicture, DrawsMorePassesWhereALaterOneFails) {
  ReplayResult result;
  result.allocator = "native";
  result.events = 4;
  result.peak_allocated_bytes = result.peak_reserved_bytes = GiB;
  const PassCourse pass(4, {GiB, GiB});
  result.course = {pass, {pass[0], pass[1]}};
  result.fits = false;
  result.failed_pass = 2;
  result.failed_event = 1;
  const auto drawn = [&] { return svg_of_replays({{"run", {result}, GiB, 6}}); };
  std::string svg = drawn();
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("data-passes-drawn=\"2\""));
  EXPECT_THAT(svg, HasSubstr("the first 2 of 6 passes"));
  // Half of the second pass.
  EXPECT_NEAR((lines_of_picture(svg).at(0).end_x - 70) / 534, 0.75, 0.01);

  result.course = {pass, pass, pass, pass};
  result.failed_pass = 6;
  svg = drawn();
  EXPECT_THAT(svg, HasSubstr("fails later, in pass 6"));

  result.fits = true;
  svg = drawn();
  EXPECT_THAT(svg, HasSubstr("data-passes-drawn=\"1\""));
}

TEST(ReplayPicture, NamesOfRunsThatFailedAtOnePlaceStandApart) {
  ReplayResult result;
  result.events = 3;
  result.fits = false;
  result.failed_pass = 1;
  std::vector<ReplayResult> results;
  for (int i = 0; i < 40; ++i) {  // more than there is room for
    result.allocator = "native+max_split_size_mb:" + std::to_string(100 + i);
    result.course = {{{GiB, GiB + i % 3 * MiB}}};
    results.push_back(result);
  }
  const std::string svg = svg_of_replays({{"run", results, 2 * GiB, 4}});
  expect_well_formed(svg);
  const auto names = all(svg, "y=\"([0-9.]+)\" class=\"name halo\"");
  ASSERT_EQ(names.size(), results.size());
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_GT(std::abs(std::stod(names[i][1]) - std::stod(names[j][1])), 17);
    }
  }
}

TEST(ReplayPicture, IsOneOfWhatHasNoEvents) {
  ReplayResult result;
  result.allocator = "gapless";
  expect_well_formed(svg_of_replays({{"empty", {result}, 0, 4}}));
  result.course = {{}, {}};
  expect_well_formed(svg_of_replays({{"empty", {result}, GiB, 4}}));
}

}  // namespace
}  // namespace gapless::tools
