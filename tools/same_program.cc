#include "tools/same_program.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

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

std::string text_of(const std::vector<Asked>& all) {
  std::string peaks;
  for (const Asked& asked : all) {
    peaks +=
        fmt::format("{}{} with {}", peaks.empty() ? "" : ", ",
                    size_text(static_cast<std::uint64_t>(asked.at_peak)), asked.run->allocator);
  }
  return fmt::format(
      "each run asked for other memory ({} at its peak): the program draws numbers without a seed, "
      "or goes by time or by the memory that it finds free",
      peaks);
}

}  // namespace

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
    const bool differs = std::any_of(all.begin(), all.end(), [&](const Asked& one) {
      return std::any_of(all.begin(), all.end(),
                         [&](const Asked& other) { return is_another(one, other); });
    });
    if (!differs) continue;
    const std::string text = text_of(all);
    for (const Asked& asked : all) {
      json& row = *asked.row;
      if (!asked.whole) continue;  // it does not fit, as it came
      if (estimates) {
        row["verdict"] = row["verdict"].get<std::string>() + ", by estimates";
        row["notes"].push_back(text);
        continue;
      }
      row["fits"] = nullptr;
      row["verdict"] = "not known";
      row["reason"] = text + " (--estimates takes each run as it came)";
    }
  }
  for (FitsRun& run : runs) add_headroom(run);
}

}  // namespace gapless::tools
