// The picture of memory over time: whole, in scale, and safe whatever stands in it.
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "tests/tools/well_formed.h"
#include "tools/memory_picture.h"
#include "tools/svg.h"

namespace gapless::tools {
namespace {

using simgpu::Holder;
using simgpu::MemoryCourse;
using testing::expect_well_formed;
using ::testing::HasSubstr;
using ::testing::Not;

MemoryCourse course_of(std::vector<std::uint64_t> parameters, std::uint64_t activations) {
  MemoryCourse course;
  for (const std::uint64_t bytes : parameters) {
    MemoryCourse::Sample sample;
    sample.held_bytes[static_cast<std::size_t>(Holder::parameters)] = bytes;
    sample.held_bytes[static_cast<std::size_t>(Holder::activations)] = activations;
    sample.allocated_bytes = bytes + activations;
    sample.reserved_bytes = sample.allocated_bytes + MiB;
    course.samples.push_back(sample);
  }
  return course;
}

MemoryPanel panel_of(const MemoryCourse& course, std::uint64_t capacity) {
  MemoryPanel panel;
  panel.title = "native, 4711, GPU 0";
  panel.course = &course;
  panel.capacity_bytes = capacity;
  panel.verdict = "yes";
  return panel;
}

// The y of each point of a holder's area.
std::vector<double> heights(const std::string& svg, const std::string& holder) {
  const std::regex area("<polygon points=\"([^\"]*)\"[^>]*><title>" + holder + "</title>");
  std::smatch found;
  std::vector<double> ys;
  if (!std::regex_search(svg, found, area)) return ys;
  const std::string points = found[1];
  const std::regex point("[0-9.]+,([0-9.]+)");
  for (auto one = std::sregex_iterator(points.begin(), points.end(), point);
       one != std::sregex_iterator(); ++one) {
    ys.push_back(std::stod((*one)[1]));
  }
  return ys;
}

TEST(MemoryPicture, HoldersLieOnEachOtherInScale) {
  const MemoryCourse course = course_of({100 * MiB, 100 * MiB}, 200 * MiB);
  const std::string svg = svg_of({panel_of(course, 400 * MiB)});
  expect_well_formed(svg);
  const auto parameters = heights(svg, "parameters");
  const auto activations = heights(svg, "activations");
  ASSERT_EQ(parameters.size(), 8U);  // above and below, two corners for each sample
  ASSERT_EQ(activations.size(), 8U);
  const double one = parameters.back() - parameters.front();
  EXPECT_NEAR(activations.back(), parameters.front(), 0.11);  // begins where those end
  EXPECT_NEAR((activations.back() - activations.front()) / one, 2, 0.02);
  EXPECT_THAT(svg, HasSubstr("capacity 400.00 MiB"));
  EXPECT_THAT(svg, Not(HasSubstr("gradients")));  // nothing of what there is none of
  EXPECT_THAT(svg, Not(HasSubstr("not had")));
}

TEST(MemoryPicture, WhereItDiedIsShownEvenAboveTheCapacity) {
  MemoryCourse course = course_of({100 * MiB}, 0);
  course.failed.emplace();
  course.failed->allocated_bytes = 100 * MiB;
  course.failed_bytes = 900 * MiB;
  MemoryPanel panel = panel_of(course, 200 * MiB);
  EXPECT_THAT(svg_of({panel}), Not(HasSubstr("not had")));  // it was caught
  panel.died = true;
  const std::string svg = svg_of({panel});
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("900.00 MiB asked, and not had"));
  const std::regex y("y[12]?=\"(-?[0-9.]+)\"");
  for (auto found = std::sregex_iterator(svg.begin(), svg.end(), y);
       found != std::sregex_iterator(); ++found) {
    EXPECT_GE(std::stod((*found)[1]), 0);
  }
}

TEST(MemoryPicture, TextsAreHarmless) {
  EXPECT_EQ(xml_text("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
  EXPECT_EQ(xml_text("\x1b[2J"), "\\x1b[2J");
  const MemoryCourse course = course_of({MiB}, 0);
  MemoryPanel panel = panel_of(course, GiB);
  panel.title = "</text><script>alert(1)</script>";
  panel.verdict = "\x01\xff\"";
  for (const std::string& file : {svg_of({panel}), html_of({panel}, "<script>\n\x1b<b>")}) {
    expect_well_formed(file);
    EXPECT_THAT(file, Not(HasSubstr("<script")));
    EXPECT_THAT(file, Not(HasSubstr("\x01")));
    EXPECT_THAT(file, Not(HasSubstr("\x1b")));
    EXPECT_THAT(file, Not(HasSubstr("http-equiv")));
  }
}

TEST(MemoryPicture, NeedsNoOtherFile) {
  const MemoryCourse course = course_of({MiB}, MiB);
  const std::string html = html_of({panel_of(course, GiB)}, "report");
  EXPECT_THAT(html, Not(HasSubstr("href")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, HasSubstr("<pre>\nreport\n</pre>"));
}

TEST(MemoryPicture, IsOneWhereNothingWasTraced) {
  expect_well_formed(svg_of({}));
  const MemoryCourse empty;
  expect_well_formed(svg_of({panel_of(empty, GiB)}));
  const MemoryCourse course = course_of({0, 0}, 0);
  expect_well_formed(svg_of({panel_of(course, 0)}));
}

}  // namespace
}  // namespace gapless::tools
