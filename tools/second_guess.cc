#include "tools/second_guess.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "tools/estimates_from.h"
#include "tools/json_values.h"
#include "tools/lacking_kernels.h"
#include "tools/left_behind.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

bool read_what_nobody_knows(const json& row) {
  const json from = member(row, "estimates_from");
  return from.is_object() && row["fits"] == true && member(row, "computes_numbers") == true &&
         from["kind"] != "size" && number(from["steered"]) > 0;
}

bool same_peak(const json& first, const json& other) {
  return took_as_much(static_cast<double>(number(first["peak_allocated_bytes"])),
                      static_cast<double>(number(other["peak_allocated_bytes"])));
}

// Whether sizes are all that keeps it from fitting.
bool but_for_sizes(const json& row) {
  return row["fits"].is_null() && member(row, "by_estimates") == true;
}

// What the run's processes always chose at each place where one did.
json all_choices(const FitsRun& run) {
  json all = json::object();
  for (const json& row : run.rows) {
    const json choices = member(row, "choices");
    for (const auto& [place, choice] : choices.items()) {
      const auto found = all.find(place);
      all[place] = found == all.end() || *found == choice ? choice : json();
    }
  }
  for (auto at = all.begin(); at != all.end();) at = at->is_null() ? all.erase(at) : std::next(at);
  return all;
}

bool refused_by_unknown(const json& row) {
  const json from = member(row, "estimates_from");
  return row["fits"] == false && from.is_object() && member(row, "unknown") == "zeros" &&
         (number(from["steered"]) > 0 || from["kind"] == "size");
}

std::string who_read(const json& row) {
  const json& from = row["estimates_from"];
  const std::uint64_t count = number(from["steered"]);
  return fmt::format("the host read integers or flags that nobody knows {}{}{}", times(count),
                     count == 1 ? "" : ", first", lines_text(from));
}

void note_other(json& row, const char* unknown, const json* other) {
  row["other_numbers"] = {
      {"unknown", unknown},
      {"fits", other == nullptr ? json() : (*other)["fits"]},
      {"peak_allocated_bytes", other == nullptr ? json() : member(*other, "peak_allocated_bytes")}};
}

// After what it says of sizes, without the advice to try what has been tried.
void add_to_reason(json& row, const std::string& more) {
  std::string reason = row["reason"];
  constexpr std::string_view kAdvice = "--unknown most makes them as large as they can be; ";
  if (const std::size_t at = reason.find(kAdvice); at != std::string::npos) {
    reason.erase(at, kAdvice.size());
  }
  row["reason"] = reason + "; " + more;
}

struct Compared {
  bool known = true;  // the answer stands
  std::string text;
};

// `first` is null where the process has no counterpart.
Compared compare(const json& row, const json* first, const json* other, const FitsRun& again) {
  const std::string read = who_read(row);
  const bool chose = !member(row, "choices").empty();
  const std::string tried =
      chose
          ? "with other numbers in their place (--unknown noise) and each choice made the other way"
          : "with other numbers in their place (--unknown noise)";
  if (first == nullptr || other == nullptr || !(*other)["pid"].is_number() ||
      took_no_step_beside(*first, *other)) {
    return {true, fmt::format("{}; {} it did not come so far as to be compared", read, tried)};
  }
  if ((*other)["fits"] == false) {
    return {false, fmt::format("{}, and {} it does not fit: {}", read, tried,
                               (*other)["reason"].get<std::string>())};
  }
  const bool ended_well = (*other)["fits"] == true;
  const bool takes_more =
      number((*other)["peak_allocated_bytes"]) > number((*first)["peak_allocated_bytes"]);
  // One that was cut short had less time to take as much.
  // One way of choosing may well take less than the other.
  const bool only_chose = chose && number(row["estimates_from"]["integers"]) == 0;
  if (!same_peak(*first, *other) && (takes_more || (ended_well && !only_chose))) {
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
  return {true, fmt::format("{}; {} it takes {}", read, tried,
                            same_peak(*first, *other) ? "as much" : "less")};
}

}  // namespace

const FitsRun* wants_second_guess(const std::vector<FitsRun>& runs, const SimulatedGpus& gpus,
                                  std::string_view unknown) {
  if (gpus.estimates) return nullptr;
  const auto found = std::find_if(runs.begin(), runs.end(), [unknown](const FitsRun& run) {
    return run.fits() == true && run.end.by == WatchedEnd::By::itself &&
           std::any_of(run.rows.begin(), run.rows.end(), [unknown](const json& row) {
             return member(row, "unknown") == unknown && read_what_nobody_knows(row);
           });
  });
  return found == runs.end() ? nullptr : &*found;
}

bool fits_but_for_sizes(const FitsRun& run, const SimulatedGpus& gpus) {
  return !gpus.estimates && gpus.unknown == "zeros" && run.end.by == WatchedEnd::By::itself &&
         std::any_of(run.rows.begin(), run.rows.end(), but_for_sizes) &&
         std::all_of(run.rows.begin(), run.rows.end(),
                     [](const json& row) { return row["fits"] == true || but_for_sizes(row); });
}

bool may_have_died_of_zeros(const FitsRun& run, const SimulatedGpus& gpus) {
  return gpus.unknown == "zeros" && run.end.by == WatchedEnd::By::itself && !run.fits() &&
         std::any_of(run.rows.begin(), run.rows.end(),
                     [](const json& row) { return may_have_died_of_zeros(row); });
}

void note_what_zeros_did(FitsRun& again, const FitsRun& first) {
  const auto died = std::find_if(first.rows.begin(), first.rows.end(),
                                 [](const json& row) { return may_have_died_of_zeros(row); });
  const json& exception = (*died)["exception"];
  for (json& row : again.rows) {
    row["notes"].push_back(
        fmt::format("with zeros in the place of numbers that nobody knows it ended with {}{}, so "
                    "they are noise (--unknown noise)",
                    exception["type"].get<std::string>(), lines_text(exception)));
  }
}

std::string choices_of(const FitsRun& run) {
  const json choices = all_choices(run);
  return choices.empty() ? "" : choices.dump();
}

std::vector<std::string> other_ways(const FitsRun& first) {
  constexpr std::size_t kMostAlone = 6;
  std::vector<std::string> ways = {choices_of(first)};
  const json choices = all_choices(first);
  if (choices.size() < 2) return ways;
  for (const auto& [place, choice] : choices.items()) {
    if (ways.size() <= kMostAlone) ways.push_back(json{{place, choice}}.dump());
  }
  return ways;
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
      note_other(row, "noise", other);
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
    }
    add_headroom(run);
  }
}

const FitsRun* wants_second_guess_of_no(const std::vector<FitsRun>& runs,
                                        const SimulatedGpus& gpus) {
  if (gpus.estimates) return nullptr;
  const auto found = std::find_if(runs.begin(), runs.end(), [](const FitsRun& run) {
    return run.end.by == WatchedEnd::By::itself &&
           std::any_of(run.rows.begin(), run.rows.end(), refused_by_unknown);
  });
  return found == runs.end() ? nullptr : &*found;
}

bool went_by_sizes(const FitsRun& run) {
  return std::any_of(run.rows.begin(), run.rows.end(), [](const json& row) {
    return refused_by_unknown(row) && row["estimates_from"]["kind"] == "size";
  });
}

void judge_no_by_second_guess(std::vector<FitsRun>& runs, const FitsRun& again) {
  for (FitsRun& run : runs) {
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      json& row = run.rows[i];
      const json* const other = counterpart(again.rows, i, row);
      if (!refused_by_unknown(row) || other == nullptr) continue;
      if ((*other)["fits"] != true && !but_for_sizes(*other)) continue;
      const std::string unknown = (*other)["unknown"];
      note_other(row, unknown.c_str(), other);
      row["fits"] = nullptr;
      row["verdict"] = "not known";
      row["reason"] = fmt::format(
          "with zeros in the place of numbers that nobody knows it does not fit ({}), and with "
          "others (--unknown {}) it does: {} are allocated",
          row["reason"].get<std::string>(), unknown, size_text((*other)["peak_allocated_bytes"]));
    }
    add_headroom(run);
  }
}

void judge_by_most(std::vector<FitsRun>& runs, const FitsRun& first, const FitsRun& again) {
  if (again.end.by == WatchedEnd::By::user) return;
  const json first_rows = first.rows;
  for (FitsRun& run : runs) {
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      json& row = run.rows[i];
      if (!row["pid"].is_number() || !but_for_sizes(row)) continue;
      const json* const before = counterpart(first_rows, i, row);
      const json* const other = counterpart(again.rows, i, row);
      if (before == nullptr || other == nullptr || !(*other)["pid"].is_number()) continue;
      note_other(row, "most", other);
      const std::string tried = "with as many as there can be (--unknown most) ";
      if ((*other)["fits"] == true || member(*other, "by_estimates") == true) {
        if (sizes_were_bounded(*other) && same_peak(*before, *other)) {
          row["fits"] = true;
          row["verdict"] = "yes";
          row["reason"] = nullptr;
          row["notes"].push_back(estimate_note(row) + "; " + tried + "it takes as much");
          judge_kernels(row);
          continue;
        }
        const char* const but =
            (*other)["fits"] == true
                ? ""
                : ", which fits as well, but need not be the most: the host read integers or flags "
                  "that nobody knows";
        add_to_reason(row, fmt::format("{}{} are allocated instead of {}{}", tried,
                                       size_text((*other)["peak_allocated_bytes"]),
                                       size_text((*before)["peak_allocated_bytes"]), but));
      } else if (number((*other)["peak_allocated_bytes"]) != 0) {
        add_to_reason(row,
                      tried + fmt::format("it is {}: {}", (*other)["verdict"].get<std::string>(),
                                          (*other)["reason"].get<std::string>()));
      }
    }
    add_headroom(run);
  }
}

}  // namespace gapless::tools
