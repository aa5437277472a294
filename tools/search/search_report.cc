#include "tools/search/search_report.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "allocator/base/bytes.h"
#include "allocator/base/terminal_text.h"
#include "allocator/gapless.h"
#include "tools/dryrun_rows.h"
#include "tools/table.h"
#include "tools/text_width.h"

namespace gapless::tools {
namespace {

using Json = nlohmann::ordered_json;
using nlohmann::json;

constexpr const char* kPeaks[] = {"peak_allocated_bytes", "peak_reserved_bytes", "peak_used_bytes",
                                  "total_bytes"};

const Varied& searched_of(const Search& search) {
  return search.command().varied()[search.searched()];
}

bool ascends(const Search& search) { return searched_of(search).ascends(); }

// "batch-size", of train.yaml:trainer.batch-size too.
std::string short_name(const Varied& varied) {
  if (varied.file.empty()) return varied.name;
  return varied.key.substr(varied.key.rfind('.') + 1);
}

std::string size_in(const json& row, const char* name) {
  const auto found = row.is_object() ? row.find(name) : row.end();
  if (found == row.end() || !found->is_number()) return "-";
  return format_bytes(found->get<std::uint64_t>());
}

std::uint64_t most_in(const ProbeResult& result, const char* name) {
  std::uint64_t most = 0;
  for (const json& row : result.rows) {
    const auto found = row.find(name);
    if (found != row.end() && found->is_number()) {
      most = std::max(most, found->get<std::uint64_t>());
    }
  }
  return most;
}

std::uint64_t allocated_in(const ProbeResult& result) {
  return most_in(result, "peak_allocated_bytes");
}

std::string value_text(const Search& search, std::size_t index) {
  return fmt::format("{} {}", short_name(searched_of(search)), searched_of(search).values[index]);
}

// A setting that takes less than a smaller one: by more than a page, which is what differs from run
// to run.
std::string sinking(const Search& search, const SearchCell& cell) {
  const std::pair<const std::size_t, ProbeResult>* before = nullptr;
  for (const auto& each : cell.results) {
    if (each.second.probed != Probed::fits) continue;
    if (before != nullptr && allocated_in(each.second) + 2 * MiB < allocated_in(before->second)) {
      return fmt::format("{} takes less than {} ({} and {} allocated)",
                         value_text(search, each.first), searched_of(search).values[before->first],
                         format_bytes(allocated_in(each.second)),
                         format_bytes(allocated_in(before->second)));
    }
    before = &each;
  }
  return "";
}

// The two that are farthest apart, where all that was tried takes the same; empty where not.
std::string without_effect(const Search& search, const SearchCell& cell) {
  if (!ascends(search) || cell.results.size() < 2) return "";
  const ProbeResult& first = cell.results.begin()->second;
  const bool all_same =
      std::all_of(cell.results.begin(), cell.results.end(), [&](const auto& each) {
        return each.second.probed == Probed::fits &&
               allocated_in(each.second) == allocated_in(first) &&
               most_in(each.second, "peak_used_bytes") == most_in(first, "peak_used_bytes");
      });
  if (!all_same) return "";
  return fmt::format("{} and {}", value_text(search, cell.results.begin()->first),
                     searched_of(search).values[cell.results.rbegin()->first]);
}

bool is_monotone(const Search& search, const SearchCell& cell) {
  return cell.boundary.failures_below_best().empty() && sinking(search, cell).empty();
}

// Of the settings that nobody knows of: what is said of them, and which they are.
std::vector<std::pair<std::string, std::vector<std::string>>> left_out(const Search& search,
                                                                       const SearchCell& cell) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const auto& [index, result] : cell.results) {
    const bool in_doubt_below =
        result.probed == Probed::in_doubt && cell.boundary.best() > std::optional(index);
    if (result.probed != Probed::not_known && !in_doubt_below) continue;
    const bool found = cell.boundary.best() == std::optional(index);  // and doubted since
    const std::string reason = (found ? ": " : ", and left out: ") + result.reason;
    if (all.empty() || all.back().first != reason)
      all.emplace_back(reason, std::vector<std::string>());
    all.back().second.push_back(ascends(search) ? searched_of(search).values[index] : "");
  }
  return all;
}

std::vector<std::string> warnings_of(const Search& search, const SearchCell& cell) {
  std::vector<std::string> warnings;
  const auto failures = cell.boundary.failures_below_best();
  const std::string sinks = sinking(search, cell);
  if (!failures.empty()) {
    std::vector<std::string> values;
    values.reserve(failures.size());
    for (const std::size_t index : failures) values.push_back(searched_of(search).values[index]);
    warnings.push_back(fmt::format(
        "memory is not monotone in {}: {} fits, and {} {} not; settings that were not tried may be "
        "either",
        short_name(searched_of(search)), searched_of(search).values[*cell.boundary.best()],
        fmt::join(values, ", "), values.size() == 1 ? "does" : "do"));
  } else if (!sinks.empty()) {
    warnings.push_back(
        fmt::format("memory is not monotone in {}: {}; a larger setting may fit where a smaller "
                    "one does not",
                    short_name(searched_of(search)), sinks));
  }
  if (const std::string same = without_effect(search, cell); !same.empty()) {
    warnings.push_back(same +
                       " take the same memory, to the byte: does the program go by that setting?");
  }
  for (const auto& [reason, values] : left_out(search, cell)) {
    const std::string which =
        ascends(search)
            ? fmt::format("{} {}", short_name(searched_of(search)), fmt::join(values, ", "))
            : cell.allocator;
    warnings.push_back(fmt::format("{}: not known{}", which, reason));
  }
  if (cell.boundary.gave_up()) {
    warnings.push_back(
        fmt::format("{} settings failed for other reasons than memory: no more were tried",
                    Boundary::kGivesUp));
  }
  if (const auto best = cell.best()) {
    for (std::string& note : notes_of(cell.results.at(*best).rows)) {
      warnings.push_back(std::move(note));
    }
    if (!search.shown_by_most().empty()) warnings.push_back(search.shown_by_most());
  }
  return warnings;
}

// A setting's values, those that are not searched.
Json combination_of(const Search& search, const SearchCell& cell) {
  Json object = Json::object();
  const auto& varied = search.command().varied();
  for (std::size_t i = 0; i < varied.size(); ++i) {
    if (i == search.searched() && ascends(search)) continue;
    object[varied[i].name] = varied[i].json_value(cell.setting[i]);
  }
  return object;
}

Json to_json(const Search& search, const SearchCell& cell, std::size_t index,
             const ProbeResult& result) {
  Json setting = Json::object();
  const auto& varied = search.command().varied();
  const Setting at = search.setting(cell, index);
  for (std::size_t i = 0; i < varied.size(); ++i) {
    setting[varied[i].name] = varied[i].json_value(at[i]);
  }
  Json object = {{"setting", std::move(setting)},
                 {"fits", nullptr},
                 {"verdict", result.verdict},
                 {"reason", nullptr}};
  if (result.probed == Probed::fits || result.probed == Probed::fails) {
    object["fits"] = result.probed == Probed::fits;
  }
  if (!result.reason.empty()) object["reason"] = result.reason;
  const json row = result.fullest();
  for (const char* const name : kPeaks)
    object[name] = row.is_object() ? row.value(name, json()) : json();
  object["seconds"] = result.seconds;
  object["host_bytes"] = result.host_bytes;
  object["exit_status"] = result.status;
  object["kept"] = result.kept;
  if (!result.output.empty()) object["output"] = result.output;
  object["rows"] = result.rows;
  return object;
}

Json to_json(const Search& search, const SearchCell& cell) {
  const Boundary& boundary = cell.boundary;
  const auto best = cell.best();
  const auto fails_at = boundary.fails_at();
  const auto ends_at = boundary.ends_at();
  const bool doubted = best != boundary.best();
  Json object = combination_of(search, cell);
  const Varied& searched = searched_of(search);
  if (ascends(search)) {
    object[searched.name] = best ? searched.json_value(*best) : Json();
    object["fails_at"] = fails_at ? searched.json_value(*fails_at) : Json();
    const auto in_doubt_at = boundary.in_doubt_at();
    object["in_doubt_at"] = in_doubt_at ? searched.json_value(*in_doubt_at) : Json();
    object["by_estimates"] = doubted ? searched.json_value(*boundary.best()) : Json();
    object["top_fits"] = best && !ends_at && boundary.closed() && boundary.proven();
  } else {
    object["fits"] = best ? Json(true) : fails_at ? Json(false) : Json();
  }
  object["proven"] = boundary.proven() && !doubted;
  object["monotone"] = is_monotone(search, cell);
  object["verdict"] = nullptr;
  const auto told = boundary.best() ? boundary.best() : ends_at;
  if (told) object["verdict"] = cell.results.at(*told).verdict;
  object["reason"] = nullptr;
  if (const auto of = doubted ? boundary.best() : ends_at) {
    object["reason"] = cell.results.at(*of).reason;
  }
  const json row = best ? cell.results.at(*best).fullest() : json();
  for (const char* const name : kPeaks)
    object[name] = row.is_object() ? row.value(name, json()) : json();
  object["warnings"] = warnings_of(search, cell);
  Json probes = Json::array();
  for (const auto& [index, result] : cell.results) {
    probes.push_back(to_json(search, cell, index, result));
  }
  object["probes"] = std::move(probes);
  return object;
}

std::vector<Table::Column> columns_of_table(const Search& search) {
  using Align = Table::Align;
  std::vector<Table::Column> columns = {{"allocator", Align::left}};
  const auto& varied = search.command().varied();
  for (std::size_t i = 0; i < varied.size(); ++i) {
    if (i != search.searched() || !ascends(search)) columns.push_back({short_name(varied[i])});
  }
  if (ascends(search)) {
    columns.push_back({short_name(searched_of(search))});
    columns.push_back({"fails at"});
  } else {
    columns.push_back({"fits", Align::left});
  }
  for (const char* const name : {"allocated", "reserved", "in use", "capacity"}) {
    columns.push_back({name});
  }
  return columns;
}

std::vector<Cell> row_of(const Search& search, const SearchCell& cell) {
  std::vector<Cell> row = {{cell.allocator}};
  const auto& varied = search.command().varied();
  for (std::size_t i = 0; i < varied.size(); ++i) {
    if (i != search.searched() || !ascends(search))
      row.push_back({varied[i].values[cell.setting[i]]});
  }
  const auto best = cell.best();
  const bool doubted = best != cell.boundary.best();
  const auto fails_at = cell.boundary.fails_at();
  const auto in_doubt_at = cell.boundary.in_doubt_at();
  const auto& values = searched_of(search).values;
  if (ascends(search)) {
    const bool answered = cell.boundary.closed() && !cell.boundary.gave_up();
    row.push_back(best
                      ? Cell{(answered ? "" : "at least ") + values[*best],
                             answered ? Colour::good : Colour::none}
                      : Cell{answered && fails_at && !doubted ? "none" : "not known", Colour::bad});
    row.push_back({fails_at ? values[*fails_at] : in_doubt_at ? values[*in_doubt_at] + "?" : "-"});
  } else {
    row.push_back(best                   ? Cell{"yes", Colour::good}
                  : fails_at && !doubted ? Cell{"no", Colour::bad}
                                         : Cell{"not known", Colour::none});
  }
  const json fullest = best ? cell.results.at(*best).fullest() : json();
  for (const char* const name : kPeaks) row.push_back({size_in(fullest, name)});
  return row;
}

// Why there is no more; empty where the table says all.
std::string sentence_of(const Search& search, const SearchCell& cell) {
  const auto best = cell.best();
  const auto ends_at = cell.boundary.ends_at();
  if (ends_at) {
    const ProbeResult& result = cell.results.at(*ends_at);
    return fmt::format("{}{}{}", result.verdict, result.reason.empty() ? "" : ": ", result.reason);
  }
  if (best && cell.boundary.closed() && ascends(search)) {
    return "it fits, and no larger one was asked for";
  }
  return "";
}

}  // namespace

Json json_of(const Search& search) {
  Json vary = Json::object();
  for (const Varied& varied : search.command().varied()) vary[varied.name] = varied.text;
  Json allocators = Json::object();
  for (const SearchCell& cell : search.cells()) {
    Json found = to_json(search, cell);
    if (search.cells().size() == search.options().allocators.size()) {
      allocators[cell.allocator] = std::move(found);
    } else {
      allocators[cell.allocator]["frontier"].push_back(std::move(found));
    }
  }
  return {{"version", gapless_version()},       {"command", search.command().words()},
          {"gpus", search.options().gpus.gpus}, {"vary", std::move(vary)},
          {"probes_run", search.probes_done()}, {"allocators", std::move(allocators)}};
}

std::string text_of(const Search& search, bool colour, std::size_t columns) {
  Table table(columns_of_table(search));
  std::size_t before = 0;
  for (const SearchCell& cell : search.cells()) {
    if (cell.combination != before && search.options().allocators.size() > 1) table.gap();
    before = cell.combination;
    table.add(row_of(search, cell));
  }
  std::string text = table.text(colour, columns);
  std::set<std::string> said;
  const auto add = [&](const std::string& words) {
    if (!said.insert(words).second) return;
    const std::string note = terminal_text(words);
    for (const std::string& line : lines_of(note, columns == 0 ? 100 : columns)) {
      text += line + "\n";
    }
  };
  const bool several = search.cells().size() > search.options().allocators.size();
  for (const SearchCell& cell : search.cells()) {
    const auto ends_at = cell.boundary.ends_at();
    const auto index = ends_at ? ends_at : cell.best();
    if (!index) continue;
    const std::string sentence = sentence_of(search, cell);
    if (sentence.empty()) continue;
    const std::string where = several || !ascends(search)
                                  ? text_of(search.command().varied(), search.setting(cell, *index))
                                  : value_text(search, *index);
    add(fmt::format("{}, {}: {}", cell.allocator, where, sentence));
  }
  // What is to be said of several allocators is said once.
  std::vector<std::pair<std::string, std::vector<std::string>>> warnings;
  for (const SearchCell& cell : search.cells()) {
    for (const std::string& warning : warnings_of(search, cell)) {
      auto found = std::find_if(warnings.begin(), warnings.end(),
                                [&](const auto& one) { return one.first == warning; });
      if (found == warnings.end()) found = warnings.insert(found, {warning, {}});
      auto& who = found->second;
      if (who.empty() || who.back() != cell.allocator) who.push_back(cell.allocator);
    }
  }
  for (const auto& [warning, who] : warnings) {
    add(fmt::format("warning: {}: {}", fmt::join(who, ", "), warning));
  }
  return text;
}

std::string line_of(const Search& search, const SearchCell& cell, std::size_t index) {
  const ProbeResult& result = cell.results.at(index);
  const json row = result.fullest();
  return fmt::format("{}, {}: {} ({} allocated, {} reserved, {})", cell.allocator,
                     text_of(search.command().varied(), search.setting(cell, index)),
                     result.verdict, size_in(row, "peak_allocated_bytes"),
                     size_in(row, "peak_reserved_bytes"),
                     result.kept ? "known from before" : fmt::format("{:.0f} s", result.seconds));
}

bool all_found(const Search& search) {
  return std::all_of(search.cells().begin(), search.cells().end(),
                     [](const SearchCell& cell) { return cell.best() && cell.boundary.proven(); });
}

}  // namespace gapless::tools
