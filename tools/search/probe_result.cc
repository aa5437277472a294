#include "tools/search/probe_result.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/json_values.h"
#include "tools/lacking_kernels.h"
#include "tools/last_words.h"
#include "tools/older_gpu.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

// A row may come from a file.
double number_in(const json& row, const char* name) {
  const json value = member(row, name);
  return value.is_number() ? value.get<double>() : 0;
}

// What the GPU has for PyTorch: what a context takes is taken.
double room_of(const json& row) {
  const double others = number_in(row, "peak_used_bytes") - number_in(row, "peak_reserved_bytes");
  const bool has_torch = number_in(row, "peak_reserved_bytes") > 0;
  return std::max(1.0, number_in(row, "total_bytes") - (has_torch ? std::max(0.0, others) : 0));
}

double taken(const json& row) {
  const double allocated = number_in(row, "peak_allocated_bytes");
  return allocated > 0 ? allocated : number_in(row, "peak_used_bytes");
}

// The first row of which that is so; null where there is none.
template <class Is>
const json* first_that(const json& rows, const Is& is) {
  const auto found = std::find_if(rows.begin(), rows.end(), is);
  return found == rows.end() ? nullptr : &*found;
}

std::string text_in(const json& row, const char* name) {
  const json value = member(row, name);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string last_lines(const std::string& text) {
  constexpr std::size_t kLines = 15;
  return fmt::format("{}", fmt::join(last_of(without_launcher(lines_said(text)), kLines), "\n"));
}

}  // namespace

json ProbeResult::fullest() const {
  const auto fullness = [](const json& row) {
    return number_in(row, "peak_used_bytes") / std::max(1.0, number_in(row, "total_bytes"));
  };
  const auto most = std::max_element(rows.begin(), rows.end(), [&](const json& a, const json& b) {
    return fullness(a) < fullness(b);
  });
  return most == rows.end() ? json() : *most;
}

bool ProbeResult::is_distributed() const {
  return first_that(rows, [](const json& row) { return member(row, "rank").is_number(); }) !=
         nullptr;
}

bool ProbeResult::fits_but_for_sizes() const {
  const auto by_estimates = [](const json& row) {
    return member(row, "fits").is_null() && member(row, "by_estimates") == true;
  };
  return probed == Probed::not_known && first_that(rows, by_estimates) != nullptr &&
         std::all_of(rows.begin(), rows.end(), [&](const json& row) {
           return member(row, "fits") == true || by_estimates(row);
         });
}

double ProbeResult::most_allocated() const {
  double most = 0;
  for (const json& row : rows) most = std::max(most, number_in(row, "peak_allocated_bytes"));
  return most;
}

FitsRun ProbeResult::as_run() const {
  FitsRun run;
  run.rows = rows;
  run.seconds = seconds;
  run.end.by = timed_out ? WatchedEnd::By::limit : WatchedEnd::By::itself;
  return run;
}

void ProbeResult::judge_anew(const FitsRun& run) {
  rows = run.rows;
  const json* const row =
      first_that(rows, [](const json& each) { return member(each, "fits") != true; });
  if (row == nullptr) {
    const json* const newer = first_that(
        rows, [](const json& each) { return text_in(each, "verdict").ends_with(kOnNewerGpus); });
    if (newer != nullptr) verdict = text_in(*newer, "verdict");
    return;
  }
  probed = Probed::not_known;
  verdict = text_in(*row, "verdict");
  reason = text_in(*row, "reason");
}

void ProbeResult::tell(MemoryEstimate& estimate, double setting) const {
  double share = 0;
  const bool asked_too_much = first_that(rows, [](const json& row) {
                                return member(row, "out_of_memory").is_object();
                              }) != nullptr;
  if (probed == Probed::fits || (probed == Probed::in_doubt && !asked_too_much)) {
    for (const json& row : rows) share = std::max(share, taken(row) / room_of(row));
    estimate.fitted(setting, share);
  } else if (probed == Probed::fails || probed == Probed::in_doubt) {
    for (const json& row : rows) {
      const json request = member(row, "out_of_memory");
      if (!request.is_object() || member(request, "device") != member(row, "device")) continue;
      share = std::max(share,
                       (number_in(request, "allocated_bytes") + number_in(request, "asked_bytes")) /
                           room_of(row));
    }
    estimate.wanted(setting, share);
  }
}

ProbeResult judged(const std::optional<json>& rows, const std::string& allocator,
                   const Probes::Over& over, const std::string& output) {
  ProbeResult result;
  result.status = over.status;
  result.seconds = over.seconds;
  result.host_bytes = over.host_bytes;
  result.timed_out = over.timed_out;
  if (rows) result.rows = *rows;
  const auto is = [&](Probed probed, const std::string& verdict, const std::string& reason) {
    result.probed = probed;
    result.verdict = verdict;
    result.reason = reason;
    if (probed == Probed::not_known) result.output = last_lines(output);
    return result;
  };
  const char* const kNotKnown = "not known";
  if (over.timed_out) {
    return is(Probed::not_known, kNotKnown,
              fmt::format("it did not end within {:.0f} s (--timeout)", over.seconds));
  }
  if (result.rows.empty())
    return is(Probed::not_known, kNotKnown, why_it_ended(without_launcher(lines_said(output))));
  if (const json* const row =
          first_that(*rows, [](const json& each) { return each["fits"] == false; })) {
    return is(Probed::fails, text_in(*row, "verdict"), text_in(*row, "reason"));
  }
  if (const json* const row =
          first_that(*rows, [](const json& each) { return each["fits"] != true; })) {
    const bool others_fit = std::all_of(rows->begin(), rows->end(), [](const json& each) {
      return each["fits"] == true || member(each, "by_garbage") == true;
    });
    return is(others_fit ? Probed::in_doubt : Probed::not_known, text_in(*row, "verdict"),
              text_in(*row, "reason"));
  }
  // Programs without PyTorch have no other allocator than CUDA's own.
  if (const json* const row = first_that(*rows, [&](const json& each) {
        return each["allocator"] != allocator &&
               (each["allocator"] != "cudaMalloc" || allocator == "gapless");
      })) {
    return is(Probed::not_known, kNotKnown,
              fmt::format("{} was used in place of {}", text_in(*row, "allocator"), allocator));
  }
  if (over.status != 0) {
    return is(Probed::not_known, kNotKnown,
              fmt::format("the command ended with status {}", over.status));
  }
  if (const json* const row = first_that(
          *rows, [](const json& each) { return number_in(each, "caught_out_of_memory") > 0; })) {
    return is(Probed::fails, text_in(*row, "verdict"), text_in(*row, "reason"));
  }
  return is(Probed::fits, text_in((*rows)[0], "verdict"), "");
}

ProbeResult with_sizes_accepted(ProbeResult result, const std::string& allocator) {
  for (json& row : result.rows) {
    if (member(row, "by_estimates") != true) continue;
    row["fits"] = true;
    row["verdict"] = "yes, by estimates";
    row["reason"] = nullptr;
    judge_kernels(row);
  }
  Probes::Over over;
  over.status = result.status;
  over.seconds = result.seconds;
  over.host_bytes = result.host_bytes;
  return judged(result.rows, allocator, over, result.output);
}

}  // namespace gapless::tools
