#include "tools/advise/advice_text.h"

#include <sstream>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "allocator/base/terminal_text.h"
#include "tools/fits_text.h"
#include "tools/json_values.h"
#include "tools/table.h"
#include "tools/text_width.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using Align = Table::Align;

// A paragraph, its lines after the first set in.
std::string item(const std::string& words, std::size_t columns, const std::string& begin = "- ") {
  std::string text;
  std::string indent = begin;
  for (const std::string& line :
       lines_of(terminal_text(words), columns - std::min(columns - 2, begin.size()))) {
    text += indent + line + "\n";
    indent.assign(begin.size(), ' ');
  }
  return text;
}

std::string causes_text(const Advice& advice, bool colour, std::size_t columns) {
  if (advice.causes.empty()) return {};
  Table table(
      {{"bytes"}, {"what takes them", Align::left, true}, {"asked for by", Align::left, true}});
  bool beside = false;
  for (const Cause& cause : advice.causes) {
    if (!cause.of_peak && !beside) {
      if (advice.needed.traced() != nullptr) {
        table.add({{format_bytes(advice.needed.traced()->course.peak.allocated_bytes)},
                   {"allocated in all at that moment"},
                   {""}});
      }
      table.gap();
      beside = true;
    }
    table.add({{format_bytes(cause.bytes)}, {cause.what}, {cause.line}});
  }
  const json& row = advice.needed.result();
  const std::string when =
      advice.needed.traced() == nullptr
          ? ""
          : fmt::format(" at its peak ({}{})",
                        row["steps"].is_null()
                            ? "steps are not known"
                            : fmt::format("step {}", advice.needed.traced()->course.peak.steps),
                        advice.roomy && advice.needed.run == advice.roomy.get()
                            ? ", with room for it"
                            : "");
  const std::string head =
      fmt::format("{}, GPU {}: what takes the memory{}", process_name(advice.as_is.result()),
                  row["device"].get<int>(), when);
  std::string text = "\n";
  for (const std::string& line : lines_of(head, columns)) text += line + "\n";
  return text + table.text(colour, columns);
}

std::string needs_text(const Remedy& remedy) {
  if (remedy.trial && remedy.trial->fits == true)
    return format_bytes(remedy.trial->allocated_bytes);
  if (!remedy.estimate) return "-";
  return fmt::format("{} {}", remedy.estimate->at_best ? "at best" : "about",
                     format_bytes(remedy.estimate->allocated_bytes));
}

Cell tried_cell(const Remedy& remedy) {
  if (!remedy.trial) return {remedy.change ? "not tried" : "-", Colour::dim};
  const Trial& trial = *remedy.trial;
  if (!trial.fits) return {"not known"};
  if (!*trial.fits) return {"does not fit", Colour::bad};
  const std::string left =
      trial.headroom_bytes ? fmt::format(", {} left", format_bytes(*trial.headroom_bytes)) : "";
  return {(trial.verdict.starts_with("yes, but") ? "fits, but" : "fits") + left, Colour::good};
}

std::string remedies_text(const Advice& advice, bool colour, std::size_t columns) {
  if (advice.remedies.empty()) return {};
  Table table({{"remedy", Align::left},
               {"lost", Align::left},
               {"allocated at its peak"},
               {"tried", Align::left},
               {"what", Align::left, true}});
  for (const Remedy& remedy : advice.remedies) {
    table.add({{remedy.id},
               {name_of(remedy.lost)},
               {needs_text(remedy)},
               tried_cell(remedy),
               {remedy.what}});
  }
  std::string text = "\n" + table.text(colour, columns) + "\n";
  for (const Remedy& remedy : advice.remedies) {
    std::string words = fmt::format("{}: {}", remedy.id, remedy.how);
    if (!remedy.loses.empty())
      words += fmt::format("; lost: {}, {}", name_of(remedy.lost), remedy.loses);
    if (remedy.id == "allocator") {
      // What it came to stands in the first table.
    } else if (remedy.trial && remedy.trial->verdict != "yes") {
      words += "; tried: " + remedy.trial->verdict;
      if (!remedy.trial->reason.empty()) words += ": " + remedy.trial->reason;
    } else if (!remedy.trial && !remedy.change && !remedy.why_not.empty()) {
      words += "; not tried: " + remedy.why_not;
    }
    for (const auto& [what, verdict] : remedy.tried_before) {
      words += fmt::format("; tried before: {}: {}", what, verdict);
    }
    if (remedy.estimate && !(remedy.trial && remedy.trial->fits == true))
      words += "; estimated: " + remedy.estimate->how;
    text += item(words, columns);
  }
  return text;
}

std::string files_text(const Advice& advice, std::size_t columns) {
  std::string text;
  for (const ChangedFile& file : advice.files) {
    if (file.written.empty()) continue;
    text += "\n";
    for (const std::string& line :
         lines_of(terminal_text(
                      fmt::format("{}: {}, written to {}", file.remedy, file.path, file.written)),
                  columns)) {
      text += line + "\n";
    }
    std::istringstream changed(file.lines);  // as they are, to be copied
    for (std::string line; std::getline(changed, line);) text += "  " + terminal_text(line) + "\n";
  }
  return text;
}

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json json_of(const Trial& trial) {
  return {{"fits", trial.fits ? json(*trial.fits) : json()},
          {"verdict", trial.verdict},
          {"reason", text_or_null(trial.reason)},
          {"peak_allocated_bytes", trial.allocated_bytes},
          {"peak_reserved_bytes", trial.reserved_bytes},
          {"headroom_bytes", trial.headroom_bytes ? json(*trial.headroom_bytes) : json()},
          {"seconds", trial.seconds}};
}

json json_of(const Remedy& remedy) {
  json before = json::array();
  for (const auto& [what, verdict] : remedy.tried_before) {
    before.push_back({{"what", what}, {"verdict", verdict}});
  }
  json estimate;
  if (remedy.estimate) {
    estimate = {{"peak_allocated_bytes", remedy.estimate->allocated_bytes},
                {"at_best", remedy.estimate->at_best},
                {"how", remedy.estimate->how}};
  }
  return {{"remedy", remedy.id},
          {"what", remedy.what},
          {"lost", name_of(remedy.lost)},
          {"loses", text_or_null(remedy.loses)},
          {"how", remedy.how},
          {"estimate", estimate},
          {"can_be_tried", static_cast<bool>(remedy.change)},
          {"why_not", text_or_null(remedy.why_not)},
          {"tried", remedy.trial ? json_of(*remedy.trial) : json()},
          {"tried_before", before}};
}

}  // namespace

std::string text_of_advice(const Advice& advice, bool colour, std::size_t columns) {
  std::string text = text_of_verdicts(advice.runs, colour, columns) + "\n";
  for (const std::string& answer : advice.answers) text += item(answer, columns);
  text += causes_text(advice, colour, columns) + remedies_text(advice, colour, columns) +
          files_text(advice, columns);
  return text + text_of_remarks(advice.runs, columns);
}

json json_of_advice(const Advice& advice) {
  const std::optional<bool> fits = advice.runs.front().fits();
  json all = {{"fits", fits ? json(*fits) : json()}, {"allocator", advice.runs.front().allocator}};
  all["answers"] = advice.answers;
  all["usable_bytes"] = advice.as_is.run != nullptr ? json(advice.usable_bytes) : json();
  all["needed"] = nullptr;
  if (advice.needed.run != nullptr && advice.needed.traced() != nullptr) {
    all["needed"] = {{"complete", advice.complete},
                     {"with_room", advice.roomy && advice.needed.run == advice.roomy.get()},
                     {"peak_allocated_bytes", advice.needed.traced()->course.peak.allocated_bytes},
                     {"step", advice.needed.result()["steps"].is_null()
                                  ? json()
                                  : json(advice.needed.traced()->course.peak.steps)}};
  }
  all["causes"] = json::array();
  for (const Cause& cause : advice.causes) {
    all["causes"].push_back({{"cause", cause.id},
                             {"what", cause.what},
                             {"bytes", cause.bytes},
                             {"line", text_or_null(cause.line)},
                             {"of_peak", cause.of_peak}});
  }
  all["remedies"] = json::array();
  for (const Remedy& remedy : advice.remedies) all["remedies"].push_back(json_of(remedy));
  all["together"] = nullptr;
  if (advice.together_trial) {
    all["together"] = {{"remedies", advice.together}, {"tried", json_of(*advice.together_trial)}};
  }
  all["files"] = json::array();
  for (const ChangedFile& file : advice.files) {
    all["files"].push_back({{"remedy", file.remedy},
                            {"file", file.path},
                            {"lines", file.lines},
                            {"text", file.text},
                            {"written", text_or_null(file.written)}});
  }
  all["runs"] = json::array();
  for (const FitsRun& run : advice.runs) {
    for (const json& row : run.rows) all["runs"].push_back(row);
  }
  return all;
}

}  // namespace gapless::tools
