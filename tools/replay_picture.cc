#include "tools/replay_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "allocator/base/terminal_text.h"
#include "tools/svg.h"
#include "tools/table.h"
#include "tools/text_width.h"

namespace gapless::tools {
namespace {

using bench::CourseColumn;
using bench::PassCourse;
using bench::ReplayResult;

constexpr double kPageWidth = 836;
constexpr double kPlotLeft = 70;
constexpr double kCurveWidth = 534;
constexpr double kAbovePlot = 66;  // above a plot: its title, and what is drawn
constexpr double kBelowPlot = 56;  // below it: the events
constexpr double kLeastHeight = 290;
constexpr double kLabelLeft = kPlotLeft + kCurveWidth + 22;
constexpr double kLabelHeight = 40;
// A capacity so many times what was reserved would leave the lines on the ground.
constexpr std::uint64_t kFarAbove = 3;

// Colours, each with a light and a dark one, that differ in brightness too; the lines' patterns
// differ where colours do not help. Nothing here is a variable: not every viewer knows those.
constexpr std::size_t kColours = 6;
constexpr std::size_t kPatterns = 5;
constexpr const char* kStyle = R"(<style>
svg:root { max-width: 100%; height: auto; margin: 0 auto; display: block; color-scheme: light dark }
text { font: 13px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #18202b }
@media (min-width: 1000px) { svg:root { width: 1180px } }

.page { fill: #ffffff }
.title { font-size: 17px; font-weight: 600 }
@media (max-width: 700px) { text { font-size: 14.5px } .title { font-size: 19px } }
.quiet { fill: #56616f }
.grid { stroke: #dde3ea }
.edge { stroke: #8a96a5 }
.allocated { fill: #d5dce5; stroke: #97a3b2; stroke-width: 0.7 }
.capacity { stroke: #18202b; stroke-width: 1.4 }
.halo { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round }
.line { fill: none; stroke: currentColor; stroke-width: 2.2; stroke-linejoin: round }
.leader { fill: none; stroke: currentColor; stroke-width: 0.8; opacity: 0.7 }
.cross { fill: none; stroke: currentColor; stroke-width: 2.8; stroke-linecap: round }
.behind { fill: none; stroke: #ffffff; stroke-width: 6.5; stroke-linecap: round }
.name { fill: currentColor; font-weight: 600 }
.c0 { color: #1660a8 } .c1 { color: #c2500a } .c2 { color: #862d86 }
.c3 { color: #00736b } .c4 { color: #7a5f00 } .c5 { color: #3d4855 }
.p1 { stroke-dasharray: 8 4 } .p2 { stroke-dasharray: 2.2 3 }
.p3 { stroke-dasharray: 11 3 2.5 3 } .p4 { stroke-dasharray: 16 5 }
@media (prefers-color-scheme: dark) {
text { fill: #dfe6ee }
.page { fill: #10161d }
.quiet { fill: #9aa8b8 }
.grid { stroke: #27313d }
.edge { stroke: #66748a }
.allocated { fill: #2d3846; stroke: #64748a }
.capacity { stroke: #e8eef5 }
.halo { stroke: #10161d }
.behind { stroke: #10161d }
.c0 { color: #6cb4f2 } .c1 { color: #ff9d5c } .c2 { color: #e39be0 }
.c3 { color: #4fd1c5 } .c4 { color: #e6c84f } .c5 { color: #c3ccd6 }
}
</style>
)";

// The text, cut where it is too long for its place.
std::string cut(const std::string& text, std::size_t columns) {
  std::string safe = terminal_text(text);
  if (columns_of(safe) <= columns) return safe;
  return lines_of(safe, columns - 1).front() + "…";
}

// "native+…ize_mb:64": of an allocator with settings, what it is and what it was set to. Names
// are ASCII.
std::string short_name(const std::string& allocator) {
  constexpr std::size_t kHead = 7;
  constexpr std::size_t kTail = 9;
  if (allocator.size() <= kHead + 1 + kTail) return allocator;
  return allocator.substr(0, kHead) + "…" + allocator.substr(allocator.size() - kTail);
}

// Which colour and pattern: always the same for those that are compared most.
std::vector<std::size_t> styles_of(const std::vector<ReplayResult>& results) {
  static constexpr std::array<std::string_view, 3> kOften = {"gapless", "native", "expandable"};
  std::vector<std::size_t> styles;
  std::size_t next = kOften.size();
  for (const ReplayResult& result : results) {
    const auto* const often = std::find(kOften.begin(), kOften.end(), result.allocator);
    styles.push_back(often == kOften.end() ? next++
                                           : static_cast<std::size_t>(often - kOften.begin()));
  }
  return styles;
}

// Of the passes that are kept, how many tell what happened.
std::size_t passes_drawn(const ReplayPanel& panel) {
  std::size_t drawn = 1;
  for (const ReplayResult& result : panel.results) {
    std::uint64_t before = 0;
    for (std::size_t pass = 0; pass < result.course.size(); ++pass) {
      std::uint64_t most = 0;
      for (const CourseColumn& column : result.course[pass]) {
        most = std::max(most, column.reserved_bytes);
      }
      // By less than a line is thick nobody sees.
      if (most > before + before / 64) drawn = std::max(drawn, pass + 1);
      before = std::max(before, most);
    }
    if (!result.fits)
      drawn = std::max(drawn, std::min<std::size_t>(result.failed_pass, result.course.size()));
  }
  return drawn;
}

// The first passes as one, in no more columns than are told apart.
PassCourse joined(const ReplayResult& result, std::size_t passes) {
  PassCourse all;
  const std::size_t shown = std::min(passes, result.course.size());
  for (std::size_t pass = 0; pass < shown; ++pass) {
    for (std::size_t i = 0; i < result.course[pass].size(); ++i) {
      if (i % passes == 0) all.emplace_back();
      CourseColumn& most = all.back();
      const CourseColumn& column = result.course[pass][i];
      most.allocated_bytes = std::max(most.allocated_bytes, column.allocated_bytes);
      most.reserved_bytes = std::max(most.reserved_bytes, column.reserved_bytes);
    }
  }
  return all;
}

// Steps from column to column, as a path; what stays the same is one stroke.
std::string steps(const PlotArea& plot, const PassCourse& course,
                  std::uint64_t CourseColumn::*bytes) {
  std::string path;
  std::string last;
  for (std::size_t i = 0; i < course.size(); ++i) {
    std::string y = fmt::format("{:.1f}", plot.y(course[i].*bytes));
    if (y == last) continue;
    path +=
        i == 0 ? fmt::format("M{:.1f} {}", plot.x(0), y) : fmt::format("H{:.1f}V{}", plot.x(i), y);
    last = std::move(y);
  }
  if (!course.empty()) path += fmt::format("H{:.1f}", plot.x(course.size()));
  return path;
}

// Beside the plot, in the order of where their lines end, each in a place of its own.
struct Label {
  double wanted_y = 0;
  double y = 0;
  std::string svg;           // around y = 0
  std::string leader_class;  // empty: none leads there from the line's end
};

void spread(std::vector<Label>& labels, double top, double bottom) {
  std::stable_sort(labels.begin(), labels.end(),
                   [](const Label& a, const Label& b) { return a.wanted_y < b.wanted_y; });
  double least = top + kLabelHeight / 2;
  for (Label& label : labels) {
    label.y = std::max(label.wanted_y, least);
    least = label.y + kLabelHeight;
  }
  double most = bottom - kLabelHeight / 2;
  for (std::size_t i = labels.size(); i-- > 0;) {
    labels[i].y = std::min(labels[i].y, most);
    most = labels[i].y - kLabelHeight;
  }
}

std::string how_a_run_ended(const ReplayResult& result) {
  if (!result.fits) {
    return static_cast<std::size_t>(result.failed_pass) > result.course.size()
               ? fmt::format("fails later, in pass {}", result.failed_pass)
               : "fails: " + format_bytes(result.failed_bytes) + " asked";
  }
  return fmt::format("{}, {:.1f} % over", format_bytes(result.peak_reserved_bytes),
                     result.overhead_percent().value_or(0));
}

std::string in_full(const ReplayResult& result) {
  std::string text = fmt::format("{}: {} reserved at most, {} allocated at most", result.allocator,
                                 format_bytes(result.peak_reserved_bytes),
                                 format_bytes(result.peak_allocated_bytes));
  if (!result.fits) {
    text += fmt::format("; fails at event {} of pass {}, which asks for {}",
                        with_commas(result.failed_event), result.failed_pass,
                        format_bytes(result.failed_bytes));
  }
  return text;
}

class PanelDrawing {
 public:
  PanelDrawing(const ReplayPanel& panel, double top)
      : panel_(panel), top_(top), passes_(passes_drawn(panel)), styles_(styles_of(panel.results)) {
    std::uint64_t most = 1;
    for (const ReplayResult& result : panel.results) {
      courses_.push_back(joined(result, passes_));
      for (const CourseColumn& column : courses_.back()) {
        most = std::max({most, column.allocated_bytes, column.reserved_bytes});
      }
      events_ = std::max<std::size_t>(events_, result.events);
    }
    capacity_in_sight_ = panel.capacity_bytes != 0 && panel.capacity_bytes / kFarAbove <= most;
    if (capacity_in_sight_) most = std::max(most, panel.capacity_bytes);
    const std::size_t columns_of_pass = div_up(bench::course_columns(events_), passes_);
    plot_ = {kPlotLeft,
             top + kAbovePlot,
             kCurveWidth,
             std::max(kLeastHeight, kLabelHeight * static_cast<double>(panel.results.size() + 1)),
             most + most / 14,
             std::max<std::size_t>(columns_of_pass * passes_, 1)};
  }

  [[nodiscard]] double height() const { return kAbovePlot + plot_.height + kBelowPlot; }

  std::string svg() {
    std::string svg =
        fmt::format("<g class=\"panel\" data-trace=\"{}\" data-passes-drawn=\"{}\">\n",
                    xml_text(panel_.title), passes_);
    svg += heads() + size_axis(plot_, "class=\"grid\"") + allocated() + event_axis();
    // Whole lines below those with gaps, which show what they cover.
    std::vector<std::size_t> order(panel_.results.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return styles_[a] % kPatterns < styles_[b] % kPatterns;
    });
    if (capacity_in_sight_) {
      const double y = plot_.y(panel_.capacity_bytes);
      svg += svg_line(plot_.left, y, plot_.right(), y, "class=\"capacity\"");
    }
    for (const std::size_t i : order) svg += run(i);
    if (panel_.capacity_bytes != 0) svg += name_of_capacity();
    for (const std::size_t i : order) svg += mark(i);
    spread(labels_, plot_.top, plot_.bottom());
    for (const Label& label : labels_) {
      if (!label.leader_class.empty()) {
        svg += fmt::format("<path class=\"leader {}\" d=\"M{:.1f} {:.1f}h4L{:.1f} {:.1f}\"/>\n",
                           label.leader_class, plot_.right(), label.wanted_y, kLabelLeft - 6,
                           label.y - 9.5);
      }
      svg += fmt::format("<g transform=\"translate({:.1f} {:.1f})\">\n{}</g>\n", kLabelLeft,
                         label.y, label.svg);
    }
    return svg + "</g>\n";
  }

 private:
  std::string heads() {
    std::string drawn = passes_ == 1 ? "the first" : fmt::format("the first {}", passes_);
    drawn = panel_.passes == 1 ? "one pass"
            : static_cast<std::size_t>(panel_.passes) == passes_
                ? fmt::format("all {} passes", passes_)
                : fmt::format("{} of {} passes", drawn, panel_.passes);
    return svg_text(kPlotLeft, top_ + 26, cut(panel_.title, 80), "class=\"title\"") +
           svg_text(kPlotLeft, top_ + 47,
                    "Memory reserved by each allocator, and allocated by the program; " + drawn,
                    "class=\"quiet\"");
  }

  // Where one pass is drawn, its events; else the passes.
  std::string event_axis() {
    std::string svg =
        svg_line(plot_.left, plot_.bottom(), plot_.right(), plot_.bottom(), "class=\"edge\"");
    const auto tick = [&](double x, const std::string& text, const char* anchor) {
      svg += svg_line(x, plot_.bottom(), x, plot_.bottom() + 5, "class=\"edge\"");
      svg += svg_text(x, plot_.bottom() + 19, text, fmt::format("text-anchor=\"{}\"", anchor));
    };
    if (passes_ == 1) {
      const auto events = static_cast<double>(std::max<std::size_t>(events_, 1));
      const double step = std::max(step_of(events), 1.0);
      for (std::size_t i = 0; static_cast<double>(i) * step <= events; ++i) {
        const double at = static_cast<double>(i) * step;
        tick(plot_.left + plot_.width * at / events, with_commas(static_cast<std::uint64_t>(at)),
             "middle");
      }
    } else {
      for (std::size_t pass = 0; pass < passes_; ++pass) {
        const double each = plot_.width / static_cast<double>(passes_);
        const double x = plot_.left + each * static_cast<double>(pass);
        if (pass != 0)
          svg +=
              svg_line(x, plot_.top, x, plot_.bottom(), "class=\"edge\" stroke-dasharray=\"1 3\"");
        svg += svg_text(x + each / 2, plot_.bottom() + 19, fmt::format("pass {}", pass + 1),
                        "text-anchor=\"middle\"");
      }
    }
    svg += svg_text(plot_.left + plot_.width / 2, plot_.bottom() + 40,
                    passes_ == 1 ? "events: allocations and frees, in order"
                                 : "allocations and frees, in order",
                    "text-anchor=\"middle\" class=\"quiet\"");
    return svg;
  }

  // By the run that got farthest.
  std::string allocated() {
    const auto farthest = std::max_element(
        courses_.begin(), courses_.end(),
        [](const PassCourse& a, const PassCourse& b) { return a.size() < b.size(); });
    if (farthest == courses_.end() || farthest->empty()) return {};
    const std::uint64_t peak =
        panel_.results[static_cast<std::size_t>(farthest - courses_.begin())].peak_allocated_bytes;
    labels_.push_back({plot_.y(farthest->back().allocated_bytes), 0,
                       "<rect class=\"allocated\" y=\"-16\" width=\"26\" height=\"12\"/>" +
                           svg_text(35, -5, "allocated", "font-weight=\"600\"") +
                           svg_text(0, 13, format_bytes(peak) + " at most", "class=\"quiet\""),
                       "c5"});
    return fmt::format(
        "<path class=\"allocated\" d=\"{}V{:.1f}H{:.1f}Z\"><title>allocated by the program: {} at "
        "most</title></path>\n",
        steps(plot_, *farthest, &CourseColumn::allocated_bytes), plot_.bottom(), plot_.left,
        format_bytes(peak));
  }

  // Named at its right end, or at its left where a run failed there.
  std::string name_of_capacity() const {
    constexpr double kName = 170;
    bool right = true;
    for (std::size_t i = 0; i < courses_.size(); ++i) {
      const double end = plot_.x(courses_[i].size());
      right = right && (panel_.results[i].fits || end < plot_.right() - kName);
    }
    const double x = right ? plot_.right() - 4 : plot_.left + 4;
    const auto* const attributes =
        right ? "class=\"halo\" text-anchor=\"end\"" : "class=\"halo\" text-anchor=\"start\"";
    const std::string text = "capacity " + format_bytes(panel_.capacity_bytes);
    if (!capacity_in_sight_) {
      return svg_text(x, plot_.top + 6, "↑ " + text + ", far above", attributes);
    }
    return svg_text(x, plot_.y(panel_.capacity_bytes) - 6, text, attributes);
  }

  [[nodiscard]] std::string colour_of(std::size_t i) const {
    return fmt::format("c{}", styles_[i] % kColours);
  }

  std::string run(std::size_t i) {
    const ReplayResult& result = panel_.results[i];
    const PassCourse& course = courses_[i];
    const std::string pattern = fmt::format("line p{}", styles_[i] % kPatterns);
    labels_.push_back(
        {course.empty() ? plot_.bottom() : plot_.y(course.back().reserved_bytes), 0,
         fmt::format(
             "<g class=\"{}\"><title>{}</title><path class=\"{}\" d=\"M0 -9.5H27\"/>{}{}</g>",
             colour_of(i), xml_text(in_full(result)), pattern,
             result.fits ? "" : cross(27, -9.5, 4),
             svg_text(35, -5, short_name(result.allocator), "class=\"name\"")) +
             svg_text(0, 13, how_a_run_ended(result)),
         result.fits ? colour_of(i) : ""});
    return fmt::format(
        "<g class=\"{}\" data-allocator=\"{}\" data-peak-reserved-bytes=\"{}\" "
        "data-peak-allocated-bytes=\"{}\" data-fits=\"{}\">\n<title>{}</title><path class=\"{}\" "
        "d=\"{}\"/></g>\n",
        colour_of(i), xml_text(result.allocator), result.peak_reserved_bytes,
        result.peak_allocated_bytes, result.fits ? "yes" : "no", xml_text(in_full(result)), pattern,
        steps(plot_, course, &CourseColumn::reserved_bytes));
  }

  // Where it failed, with its name.
  std::string mark(std::size_t i) {
    const ReplayResult& result = panel_.results[i];
    if (result.fits || courses_[i].empty()) return {};
    const double x = plot_.x(courses_[i].size());
    const double y = plot_.y(courses_[i].back().reserved_bytes);
    // Below the cross, and below the names of others that stand there.
    double name_y = std::min(y + 23, plot_.bottom() - 6);
    const auto taken = [&] {
      return std::find_if(names_.begin(), names_.end(), [&](const auto& other) {
        return std::abs(other.first - x) < 150 && std::abs(other.second - name_y) < 18;
      });
    };
    for (auto other = taken(); other != names_.end() && name_y < plot_.bottom(); other = taken()) {
      name_y = other->second + 18.5;  // clear of it, whatever rounding does
    }
    names_.emplace_back(x, name_y);
    const bool at_the_left = x < plot_.left + 80;
    const bool at_the_right = x > plot_.right() - 80;
    return fmt::format(
        "<g class=\"{} failed\" data-allocator=\"{}\"><title>{}</title>{}{}</g>\n", colour_of(i),
        xml_text(result.allocator), xml_text(in_full(result)), cross(x, y, 6),
        svg_text(at_the_left    ? x - 6
                 : at_the_right ? x + 6
                                : x,
                 name_y, short_name(result.allocator) + " fails",
                 fmt::format("class=\"name halo\" text-anchor=\"{}\"", at_the_left    ? "start"
                                                                       : at_the_right ? "end"
                                                                                      : "middle")));
  }

  static std::string cross(double x, double y, int arm) {
    const std::string path = fmt::format("M-{0} -{0}L{0} {0}M-{0} {0}L{0} -{0}", arm);
    return fmt::format(
        "<g transform=\"translate({:.1f} {:.1f})\"><path class=\"behind\" d=\"{}\"/><path "
        "class=\"cross\" d=\"{}\"/></g>",
        x, y, path, path);
  }

  const ReplayPanel& panel_;
  double top_;
  std::size_t passes_;
  std::size_t events_ = 0;
  std::vector<std::size_t> styles_;
  std::vector<PassCourse> courses_;
  bool capacity_in_sight_ = false;
  PlotArea plot_;
  std::vector<Label> labels_;
  std::vector<std::pair<double, double>> names_;  // beside crosses: where they stand
};

}  // namespace

std::string svg_of_replays(const std::vector<ReplayPanel>& panels) {
  std::string body;
  double top = 0;
  for (const ReplayPanel& panel : panels) {
    PanelDrawing drawing(panel, top);
    body += drawing.svg();
    top += drawing.height();
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
             "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<title>gapless replay: memory reserved by each "
             "allocator</title>\n",
             kPageWidth, top) +
         kStyle + "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n" + body + "</svg>\n";
}

}  // namespace gapless::tools
