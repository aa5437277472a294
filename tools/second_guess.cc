#include "tools/second_guess.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "tools/estimates_from.h"
#include "tools/json_values.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

// Peaks that differ by less are the same: what is taken for one and the same thing differs by the
// order in which it came.
constexpr double kSamePart = 0.005;

bool read_what_nobody_knows(const json& row) {
  const json from = member(row, "estimates_from");
  return from.is_object() && row["fits"] == true && member(row, "unknown") == "zeros" &&
         member(row, "computes_numbers") == true && from["kind"] != "size" &&
         number(from["steered"]) > 0;
}

// The row of the same process and GPU; null where there is none. Processes without a rank come in
// the order in which they began.
const json* counterpart(const json& rows, std::size_t at, const json& row) {
  const auto is = [&](const json& other) {
    return member(other, "device") == row["device"] && member(other, "rank") == row["rank"];
  };
  if (row["rank"].is_number()) {
    const auto found = std::find_if(rows.begin(), rows.end(), is);
    return found == rows.end() ? nullptr : &*found;
  }
  return at < rows.size() && is(rows[at]) ? &rows[at] : nullptr;
}

std::string who_read(const json& row) {
  const json from = row["estimates_from"];
  const std::uint64_t count = number(from["steered"]);
  return fmt::format("the host read integers or flags that nobody knows {}{}{}", times(count),
                     count == 1 ? "" : ", first", lines_text(from));
}

struct Compared {
  bool known = true;  // the answer stands
  std::string text;
};

// `first` is null where the process has no counterpart.
Compared compare(const json& row, const json* first, const json* other, const FitsRun& again) {
  const std::string read = who_read(row);
  const std::string tried = "with other numbers in their place (--unknown noise)";
  if (first == nullptr || other == nullptr || !(*other)["pid"].is_number()) {
    return {true, fmt::format("{}; {} it did not come so far as to be compared", read, tried)};
  }
  if ((*other)["fits"] == false) {
    return {false, fmt::format("{}, and {} it does not fit: {}", read, tried,
                               (*other)["reason"].get<std::string>())};
  }
  const auto before = static_cast<double>(number((*first)["peak_allocated_bytes"]));
  const auto now = static_cast<double>(number((*other)["peak_allocated_bytes"]));
  const bool ended_well = (*other)["fits"] == true;
  // One that was cut short had less time to take as much.
  if (now > before * (1 + kSamePart) || (ended_well && now < before * (1 - kSamePart))) {
    return {false,
            fmt::format("{}, and {} {} were allocated instead of {}: the memory it takes "
                        "follows from them, or from chance (--estimates takes it as it came)",
                        read, tried, size_text((*other)["peak_allocated_bytes"]),
                        size_text((*first)["peak_allocated_bytes"]))};
  }
  if (!ended_well) {
    const char* const how = again.end.by == WatchedEnd::By::limit
                                ? "had not ended when it was stopped"
                                : "did not end well";
    return {true,
            fmt::format("{}; {} it {}, having allocated no more until then", read, tried, how)};
  }
  return {true, fmt::format("{}; {} it takes as much", read, tried)};
}

}  // namespace

const FitsRun* wants_second_guess(const std::vector<FitsRun>& runs, const SimulatedGpus& gpus) {
  if (gpus.estimates) return nullptr;
  const auto found = std::find_if(runs.begin(), runs.end(), [](const FitsRun& run) {
    return run.fits() == true && run.end.by == WatchedEnd::By::itself &&
           std::any_of(run.rows.begin(), run.rows.end(), read_what_nobody_knows);
  });
  return found == runs.end() ? nullptr : &*found;
}

double second_guess_limit_seconds(const FitsRun& first) { return 30 + 4 * first.seconds; }

void judge_by_second_guess(std::vector<FitsRun>& runs, const FitsRun& first, const FitsRun& again) {
  if (again.end.by == WatchedEnd::By::user) return;
  const json first_rows = first.rows;  // which are judged anew, too
  for (FitsRun& run : runs) {
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      json& row = run.rows[i];
      if (!row["pid"].is_number() || !read_what_nobody_knows(row)) continue;
      const json* const other = counterpart(again.rows, i, row);
      const Compared compared = compare(row, counterpart(first_rows, i, row), other, again);
      row["other_numbers"] = {{"unknown", "noise"},
                              {"fits", other == nullptr ? json() : (*other)["fits"]},
                              {"peak_allocated_bytes",
                               other == nullptr ? json() : member(*other, "peak_allocated_bytes")}};
      // A flag was told of before anybody had tried.
      const std::string untried = estimate_note(row);
      json notes = json::array();
      for (const json& note : row["notes"]) {
        if (untried.empty() || note != untried) notes.push_back(note);
      }
      row["notes"] = std::move(notes);
      if (compared.known) {
        row["notes"].push_back(compared.text);
        continue;
      }
      row["fits"] = nullptr;
      row["verdict"] = "not known";
      row["reason"] = compared.text;
      row["headroom_bytes"] = nullptr;
      row["headroom_percent"] = nullptr;
    }
  }
}

}  // namespace gapless::tools
