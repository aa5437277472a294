#include "tools/recorded_run.h"

#include <utility>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "bench/replay/replay.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

// "2.07 GiB at event 812 (train.py:40 forward), with 14.83 GiB live"
std::string text_of(const Trace& trace, const UnservedRequest& request) {
  const std::string& site = trace.sites[trace.events[request.event].site];
  return fmt::format("{} at event {}{}, with {} live", format_bytes(request.bytes),
                     with_commas(request.event), site.empty() ? "" : " (" + site + ")",
                     format_bytes(request.live_bytes));
}

}  // namespace

RecordedRun::RecordedRun(Trace recorded)
    : trace(std::move(recorded)), failed(unserved_requests(trace)), end(failed.last_straw()) {
  if (!end) return;
  beyond_any_gpu = end->needs_bytes > bench::kLargestGpuBytes;
  if (!beyond_any_gpu) trace = with_request_served(std::move(trace), *end);
}

std::string RecordedRun::name() const {
  return trace.device == 0 ? trace.name : fmt::format("{} gpu{}", trace.name, trace.device);
}

std::string RecordedRun::note() const {
  std::string text;
  const std::size_t went_on = failed.all.size() - failed.unanswered;
  if (end) {
    text = fmt::format(
        "{}: this run ended out of memory: it asked for {}, and did not get it. It needs at least "
        "{}{}; what it would have needed after that is not known. The figures are of the run so "
        "far, {}.",
        name(), text_of(trace, *end), format_bytes(end->needs_bytes),
        beyond_any_gpu ? ", more than any GPU has" : "",
        beyond_any_gpu ? "without that request" : "with that request served");
    if (went_on != 0) {
      text += fmt::format(" {} before had failed as well, and it had gone on.",
                          went_on == 1 ? "A request" : with_commas(went_on) + " requests");
    }
  } else if (const auto missed = failed.most_missed()) {
    text = fmt::format(
        "{}: while it was recorded {} did not get {} memory, and the program went on without{}{}. "
        "The figures are of what it did then; with that request served it needs at least {}, and "
        "what it would have done is not known.",
        name(), went_on == 1 ? "a request" : with_commas(went_on) + " requests",
        went_on == 1 ? "its" : "their",
        went_on == 1 ? ": " : "; the one that needed most: ", text_of(trace, *missed),
        format_bytes(missed->needs_bytes));
  }
  return text;
}

void RecordedRun::tell(nlohmann::json& row) const {
  nlohmann::json requests = nlohmann::json::array();
  for (const UnservedRequest& request : failed.all) {
    requests.push_back({{"event", request.event},
                        {"asked_bytes", request.bytes},
                        {"live_bytes", request.live_bytes},
                        {"needs_bytes", request.needs_bytes},
                        {"site", trace.sites[trace.events[request.event].site]}});
  }
  row["failed_requests"] = std::move(requests);
  row["ended_out_of_memory"] = end.has_value();
  row["at_least_bytes"] = nullptr;
  if (end) row["at_least_bytes"] = end->needs_bytes;
}

std::vector<RecordedRun> recorded_runs(std::vector<Trace> traces) {
  std::vector<RecordedRun> runs;
  runs.reserve(traces.size());
  for (Trace& trace : traces) runs.emplace_back(std::move(trace));
  return runs;
}

}  // namespace gapless::tools
