#include "tools/same_program.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/estimates_from.h"
#include "tools/json_values.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct Asked {
  const FitsRun* run = nullptr;
  json* row = nullptr;
  bool whole = true;  // else it was refused memory, and would have asked for more
  double in_all = 0;
  double at_peak = 0;
};

// What a process asked for; nothing of one that went on with less after it was refused, of one that
// nobody knows of, and of one whose allocator does not count it.
std::optional<Asked> asked_by(FitsRun& run, json& row) {
  const bool counted = number(member(row, "requested_bytes")) != 0;
  if (run.end.by != WatchedEnd::By::itself || !counted || !row["fits"].is_boolean()) return {};
  const bool fits = row["fits"].get<bool>();
  if (fits && number(member(row, "caught_out_of_memory")) != 0) return {};
  return Asked{&run, &row, fits, static_cast<double>(number(row["requested_bytes"])),
               static_cast<double>(number(member(row, "peak_requested_bytes")))};
}

bool is_another(const Asked& one, const Asked& other) {
  if (one.whole && other.whole) {
    return !took_as_much(one.in_all, other.in_all) && !took_as_much(one.at_peak, other.at_peak);
  }
  // Until it was refused one program had asked for no more than it does in all.
  const Asked& whole = one.whole ? one : other;
  const Asked& part = one.whole ? other : one;
  return whole.whole && part.at_peak > whole.at_peak && !took_as_much(whole.at_peak, part.at_peak);
}

bool differ(const Asked* begin, const Asked* end) {
  return std::any_of(begin, end, [&](const Asked& one) {
    return std::any_of(begin, end, [&](const Asked& other) { return is_another(one, other); });
  });
}

std::string peaks_of(const std::vector<Asked>& all) {
  std::string peaks;
  for (const Asked& asked : all) {
    peaks +=
        fmt::format("{}{} with {}", peaks.empty() ? "" : ", ",
                    size_text(static_cast<std::uint64_t>(asked.at_peak)), asked.run->allocator);
  }
  return peaks;
}

void set_not_known(json& row, const std::string& reason) {
  row["fits"] = nullptr;
  row["verdict"] = "not known";
  row["reason"] = reason;
}

// Whether only the first run, in which kernels were compiled, asked for more.
bool only_compiling_did_more(const std::vector<Asked>& all) {
  const Asked* const begin = all.data();
  const Asked* const end = begin + all.size();
  return member(*begin->row, "compiled") == "made" && !differ(begin + 1, end) &&
         std::all_of(begin + 1, end, [&](const Asked& later) {
           return member(*later.row, "compiled") == "found" && later.at_peak < begin->at_peak;
         });
}

void judge_where_kernels_are_there(const std::vector<Asked>& all) {
  const std::string text = fmt::format(
      "in the first run, with {}, kernels were compiled and tried out, and {} were asked for at "
      "its peak; runs that find them ask for {}",
      all[0].run->allocator, size_text(static_cast<std::uint64_t>(all[0].at_peak)),
      size_text(static_cast<std::uint64_t>(all[1].at_peak)));
  for (const Asked& asked : all) {
    json& row = *asked.row;
    if (!asked.whole) continue;
    const auto left = static_cast<double>(number(member(row, "total_bytes"))) -
                      static_cast<double>(number(member(row, "peak_used_bytes")));
    if (all[0].at_peak - asked.at_peak <= left) {
      row["notes"].push_back(text);
    } else {
      set_not_known(row, text + ": where there are none yet it may not fit");
    }
  }
}

// The first run showed what those that find kernels leave open.
void drop_what_was_seen(const std::vector<Asked>& all) {
  if (member(*all.front().row, "compiled") != "made") return;
  for (const Asked& asked : all) {
    const std::string unseen = found_kernels_note(*asked.row);
    json notes = json::array();
    for (const json& note : member(*asked.row, "notes")) {
      if (note != unseen) notes.push_back(note);
    }
    (*asked.row)["notes"] = std::move(notes);
  }
}

void judge_as_others(const std::vector<Asked>& all, bool estimates) {
  const std::string text = fmt::format(
      "each run asked for other memory ({} at its peak): the program draws numbers without a seed, "
      "or goes by time or by the memory that it finds free",
      peaks_of(all));
  for (const Asked& asked : all) {
    json& row = *asked.row;
    if (!asked.whole) continue;  // it does not fit, as it came
    if (estimates) {
      row["verdict"] = row["verdict"].get<std::string>() + ", by estimates";
      row["notes"].push_back(text);
    } else {
      set_not_known(row, text + " (--estimates takes each run as it came)");
    }
  }
}

}  // namespace

std::string found_kernels_note(const json& row) {
  if (member(row, "compiled") != "found" || row["fits"] != true) return {};
  return "compiled kernels were found where an earlier run kept them: a run that finds none tries "
         "them out, and may ask for more memory meanwhile";
}

std::string drew_from(const FitsRun& run) {
  std::set<std::string> names;
  if (run.fits() != true || run.end.by != WatchedEnd::By::itself) return {};
  for (const json& row : run.rows) {
    for (const json& name : member(row, "drew_from")) names.insert(name.get<std::string>());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string drawn_note(const FitsRun& run) {
  const std::string names = drew_from(run);
  if (names.empty()) return {};
  return "numbers were drawn (" + names +
         "): another run may ask for other memory (`gapless fits` makes one)";
}

void take_for_not_known(FitsRun& run, const std::string& reason) {
  for (json& row : run.rows) {
    if (row["fits"] == true) set_not_known(row, reason);
  }
  add_headroom(run);
}

void judge_by_another_run(FitsRun& run, FitsRun again) {
  const std::string drew = "numbers were drawn (" + drew_from(run) + "), and another run ";
  std::vector<FitsRun> both;
  both.push_back(std::move(run));
  both.push_back(std::move(again));
  judge_by_one_another(both, false);
  run = std::move(both[0]);
  for (std::size_t i = 0; i < run.rows.size(); ++i) {
    json& row = run.rows[i];
    if (row["fits"] != true) continue;
    const json* const other = counterpart(both[1].rows, i, row);
    if (other == nullptr || !(*other)["pid"].is_number() || (*other)["fits"].is_null()) {
      row["notes"].push_back(drew + "did not come so far as to be compared");
    } else if ((*other)["fits"] == false) {
      set_not_known(row, drew + "does not fit: " + (*other)["reason"].get<std::string>());
    } else {
      row["notes"].push_back(drew + "asked for as much");
    }
  }
  add_headroom(run);
}

void judge_by_one_another(std::vector<FitsRun>& runs, bool estimates) {
  if (runs.empty()) return;
  const json first_rows = runs.front().rows;  // which are judged anew, too
  for (std::size_t i = 0; i < first_rows.size(); ++i) {
    const json& first = first_rows[i];
    if (!first["pid"].is_number()) continue;
    std::vector<Asked> all;
    for (FitsRun& run : runs) {
      const json* const found = counterpart(run.rows, i, first);
      if (found == nullptr) continue;
      const auto asked = asked_by(run, run.rows[static_cast<std::size_t>(found - &run.rows[0])]);
      if (asked) all.push_back(*asked);
    }
    if (all.empty()) continue;
    drop_what_was_seen(all);
    if (!differ(all.data(), all.data() + all.size())) continue;
    if (only_compiling_did_more(all)) {
      judge_where_kernels_are_there(all);
    } else {
      judge_as_others(all, estimates);
    }
  }
  for (FitsRun& run : runs) add_headroom(run);
}

}  // namespace gapless::tools
