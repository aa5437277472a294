#include "tools/inspect/reports_of_file.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "allocator/base/error.h"
#include "allocator/report/recording.h"

namespace gapless::tools {

std::optional<MomentChoice> read_moment(const std::string& text) {
  using Kind = MomentChoice::Kind;
  if (text.empty()) return MomentChoice{};
  if (text == "peak") return MomentChoice{Kind::peak};
  if (text == "end") return MomentChoice{Kind::end};
  if (text == "oom") return MomentChoice{Kind::oom};
  MomentChoice choice{Kind::event};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), choice.event);
  if (error != std::errc{} || stop != text.data() + text.size()) return {};
  return choice;
}

CLI::Validator moment_check() {
  return {[](const std::string& text) {
            return read_moment(text)
                       ? std::string()
                       : "\"" + text + "\": expected peak, end, oom or an event's number";
          },
          ""};
}

std::vector<MomentReport> reports_of_file(const std::string& path, const MomentOptions& options) {
  Recording recording = open_recording(path);
  const bool several = recording.traces.size() > 1;
  std::vector<MomentReport> reports;
  for (Trace& trace : recording.traces) {
    reports.push_back(report_moment(std::move(trace), recording.now, options));
    reports.back().several_devices = several;
  }
  if (!recording.now) return reports;
  MemoryState rest = std::move(*recording.now);
  std::erase_if(rest.segments, [&](const StateSegment& segment) {
    return std::any_of(reports.begin(), reports.end(),
                       [&](const MomentReport& report) { return report.device == segment.device; });
  });
  if (!reports.empty() && rest.segments.empty()) return reports;
  const MomentChoice::Kind asked = options.at.kind;
  if (asked == MomentChoice::Kind::best || asked == MomentChoice::Kind::end) {
    reports.push_back(report_state(std::move(rest), options));
  } else if (reports.empty()) {
    throw InputError("--at: " + path + " has no events, only what lay where when it was written");
  }
  return reports;
}

}  // namespace gapless::tools
