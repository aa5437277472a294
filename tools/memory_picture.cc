#include "tools/memory_picture.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/fits_text.h"
#include "tools/svg.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using simgpu::Holder;
using simgpu::kHolders;
using simgpu::MemoryCourse;

constexpr double kLeft = 70;
constexpr double kPlotWidth = 640;
constexpr double kPlotHeight = 240;
constexpr double kTop = 34;
constexpr double kPanelHeight = kTop + kPlotHeight + 46;
constexpr double kWidth = kLeft + kPlotWidth + 180;

// From the ground up: what stays first.
constexpr std::array kOrder = {Holder::parameters,
                               Holder::buffers,
                               Holder::optimizer_states,
                               Holder::gradients,
                               Holder::workspaces,
                               Holder::inputs,
                               Holder::unknown,
                               Holder::parameter_copies,
                               Holder::activations,
                               Holder::backward,
                               Holder::loss,
                               Holder::optimizer_step};
static_assert(kOrder.size() == kHolders);

// Of a palette whose neighbours can be told apart without red and green.
const char* colour_of(Holder holder) {
  switch (holder) {
    case Holder::parameters:
      return "#4477aa";
    case Holder::gradients:
      return "#66ccee";
    case Holder::optimizer_states:
      return "#228833";
    case Holder::buffers:
      return "#99ddff";
    case Holder::inputs:
      return "#bbcc33";
    case Holder::activations:
      return "#ccbb44";
    case Holder::loss:
      return "#ee6677";
    case Holder::backward:
      return "#ee8866";
    case Holder::optimizer_step:
      return "#44bb99";
    case Holder::workspaces:
      return "#aa3377";
    case Holder::parameter_copies:
      return "#117799";
    case Holder::unknown:
      break;
  }
  return "#bbbbbb";
}

// The area between what is below and what a holder adds, in steps.
std::string area(const PlotArea& plot, const std::vector<std::uint64_t>& below,
                 const std::vector<std::uint64_t>& above, const char* colour,
                 const std::string& title) {
  std::string points;
  for (std::size_t i = 0; i < above.size(); ++i) {
    points += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", plot.x(i), plot.y(above[i]),
                          plot.x(i + 1), plot.y(above[i]));
  }
  for (std::size_t i = below.size(); i-- > 0;) {
    points += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", plot.x(i + 1), plot.y(below[i]),
                          plot.x(i), plot.y(below[i]));
  }
  return fmt::format("<polygon points=\"{}\" fill=\"{}\"><title>{}</title></polygon>\n", points,
                     colour, xml_text(title));
}

class Legend {
 public:
  Legend(double x, double y) : x_(x), y_(y) {}
  void add(const char* colour, const std::string& name) {
    svg_ +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"10\" fill=\"{}\"/>\n",
                    x_, y_ - 9, colour);
    svg_ += svg_text(x_ + 17, y_, name);
    y_ += 17;
  }
  [[nodiscard]] const std::string& svg() const { return svg_; }

 private:
  double x_;
  double y_;
  std::string svg_;
};

std::string panel_svg(const MemoryPanel& panel, double top) {
  const MemoryCourse& course = *panel.course;
  const std::vector<MemoryCourse::Sample>& samples = course.samples;
  PlotArea plot{kLeft,       top + kTop,           kPlotWidth,
                kPlotHeight, panel.capacity_bytes, std::max<std::size_t>(samples.size(), 1)};
  if (panel.died && course.failed) {
    plot.most_bytes =
        std::max(plot.most_bytes,
                 panel.outside_bytes + course.failed->allocated_bytes + course.failed_bytes);
  }
  plot.most_bytes = std::max<std::uint64_t>(plot.most_bytes / 20 * 21, 1);
  std::string svg = svg_text(kLeft, top + 18, panel.title + ": " + panel.verdict,
                             "font-size=\"14\" font-weight=\"bold\"");
  svg += size_axis(plot, "stroke=\"#ddd\"");
  Legend legend(kLeft + kPlotWidth + 14, top + kTop + 10);
  std::vector<std::uint64_t> below(samples.size(), 0);
  std::vector<std::uint64_t> above(samples.size(), panel.outside_bytes);
  std::vector<std::pair<const char*, std::string>> names;
  const auto stack = [&](const char* colour, const std::string& name) {
    svg += area(plot, below, above, colour, name);
    names.emplace_back(colour, name);
    below = above;
  };
  if (panel.outside_bytes != 0) {
    stack("#777777", "context, libraries");
  } else {
    below = above;
  }
  for (const Holder holder : kOrder) {
    bool any = false;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::uint64_t held = samples[i].held_bytes[static_cast<std::size_t>(holder)];
      above[i] = below[i] + held;
      any = any || held != 0;
    }
    if (any) stack(colour_of(holder), holder_text(simgpu::name_of(holder)));
  }
  // What is reserved and not allocated, over all of it.
  std::string reserved;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double y = plot.y(panel.outside_bytes + samples[i].reserved_bytes);
    reserved += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", plot.x(i), y, plot.x(i + 1), y);
  }
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#222\" stroke-width=\"1\"/>\n",
                     reserved);
  const double capacity = plot.y(panel.capacity_bytes);
  svg += svg_line(kLeft, capacity, kLeft + kPlotWidth, capacity,
                  "stroke=\"#cc0000\" stroke-width=\"1.5\" stroke-dasharray=\"6 3\"");
  svg += svg_text(kLeft + 4, capacity - 4, "capacity " + format_bytes(panel.capacity_bytes),
                  "fill=\"#cc0000\"");
  std::uint64_t steps = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].steps == steps) continue;
    steps = samples[i].steps;
    svg += svg_line(plot.x(i), top + kTop + kPlotHeight, plot.x(i), top + kTop + kPlotHeight + 4,
                    "stroke=\"#222\"");
  }
  svg += svg_text(kLeft + kPlotWidth / 2, top + kTop + kPlotHeight + 22,
                  fmt::format("allocations and frees, in order; {} optimizer step{}",
                              with_commas(steps), steps == 1 ? "" : "s"),
                  "text-anchor=\"middle\"");
  if (panel.died && course.failed) {
    const double x = kLeft + kPlotWidth;
    const std::uint64_t had = panel.outside_bytes + course.failed->allocated_bytes;
    svg += svg_line(x, plot.y(had), x, plot.y(had + course.failed_bytes),
                    "stroke=\"#cc0000\" stroke-width=\"4\"");
    svg += svg_text(x - 6, plot.y(had + course.failed_bytes) + 14,
                    format_bytes(course.failed_bytes) + " asked, and not had",
                    "text-anchor=\"end\"fill=\"#cc0000\" font-weight=\"bold\"");
  }
  std::reverse(names.begin(), names.end());  // as they lie one above the other
  legend.add("#222", "reserved (line)");
  for (const auto& [colour, name] : names) legend.add(colour, name);
  return svg + legend.svg();
}

}  // namespace

std::string svg_of(const std::vector<MemoryPanel>& panels) {
  const double height = kPanelHeight * static_cast<double>(std::max<std::size_t>(panels.size(), 1));
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\"><rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      kWidth, height);
  double top = 0;
  for (const MemoryPanel& panel : panels) {
    svg += panel_svg(panel, top);
    top += kPanelHeight;
  }
  if (panels.empty()) svg += svg_text(kLeft, kTop, "No memory was traced.");
  return svg + "</svg>\n";
}

std::string html_of(const std::vector<MemoryPanel>& panels, const std::string& report) {
  std::string text;
  std::size_t begin = 0;
  while (begin < report.size()) {  // line by line: a line end is no harm here
    const std::size_t end = std::min(report.find('\n', begin), report.size());
    text += xml_text(report.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>gapless "
         "fits</title></head>\n<body>\n" +
         svg_of(panels) + "<pre>\n" + text + "</pre>\n</body></html>\n";
}

}  // namespace gapless::tools
