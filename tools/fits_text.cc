#include "tools/fits_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "allocator/base/bytes.h"
#include "allocator/base/terminal_text.h"
#include "tools/dryrun_rows.h"
#include "tools/json_values.h"
#include "tools/lacking_kernels.h"
#include "tools/table.h"
#include "tools/text_width.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using Align = Table::Align;

constexpr std::size_t kPlacesShown = 8;

// Lines of text under a table, broken at blanks.
class Notes {
 public:
  explicit Notes(std::size_t columns) : columns_(columns) {}
  void add(const std::string& words) {
    if (!said_.insert(words).second) return;
    for (const std::string& line : lines_of(terminal_text(words), columns_)) text_ += line + "\n";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::size_t columns_;
  std::set<std::string> said_;
  std::string text_;
};

// Sentences, and of whom each is to be said: the same of several is said once.
class Shared {
 public:
  void add(const std::string& who, const std::string& words) {
    auto found =
        std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one.first == words; });
    if (found == all_.end()) found = all_.insert(found, {words, {}});
    if (std::find(found->second.begin(), found->second.end(), who) == found->second.end()) {
      found->second.push_back(who);
    }
  }
  [[nodiscard]] bool has(const std::string& words) const {
    return std::any_of(all_.begin(), all_.end(),
                       [&](const auto& one) { return one.first == words; });
  }
  [[nodiscard]] const auto& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> all_;
};

std::string headroom_text(const json& row) {
  const json bytes = member(row, "headroom_bytes");
  if (!bytes.is_number()) return "-";
  return fmt::format("{} ({:.1f} %)", size_text(bytes), row["headroom_percent"].get<double>());
}

// "yes, but": what it is stands under the table.
std::string short_verdict(const json& row) {
  const std::string verdict = row["verdict"];
  return verdict.ends_with("newer GPUs")        ? "on newer GPUs"  // whatever else
         : verdict.ends_with(kWithAnotherBuild) ? "another build"
         : verdict.starts_with("yes, but")      ? "yes, but"
         : verdict.starts_with("yes, by")       ? "by estimates"
         : verdict.starts_with("yes, at the")   ? "at the most"
                                                : verdict;
}

std::string verdicts(const std::vector<FitsRun>& runs, bool colour, std::size_t columns) {
  Table table({{"process", Align::left},
               {"gpu", Align::left},
               {"allocator", Align::left},
               {"allocated"},
               {"reserved"},
               {"headroom"},
               {"fits", Align::left}});
  for (const FitsRun& run : runs) {
    for (const json& row : run.rows) {
      const Colour verdict = row["fits"].is_null() ? Colour::none
                             : row["fits"]         ? Colour::good
                                                   : Colour::bad;
      table.add({{process_name(row)},
                 {row["device"].is_number() ? fmt::format("{}", row["device"].get<int>()) : "-"},
                 {row["asked_allocator"].get<std::string>()},
                 {size_text(member(row, "peak_allocated_bytes"))},
                 {size_text(member(row, "peak_reserved_bytes"))},
                 {headroom_text(row)},
                 {short_verdict(row), verdict}});
    }
  }
  return table.text(colour, columns);
}

void add_reasons(Notes& notes, const std::vector<FitsRun>& runs) {
  Shared said;
  for (const FitsRun& run : runs) {
    for (const json& row : run.rows) {
      if (row["reason"].is_null()) continue;
      const std::string who =
          row["pid"].is_null() ? run.allocator : process_name(row) + " with " + run.allocator;
      said.add(who, fmt::format("{}: {}", row["verdict"].get<std::string>(),
                                row["reason"].get<std::string>()));
    }
  }
  for (const FitsRun& run : runs) {
    for (const json& row : run.rows) {
      for (const json& note : member(row, "notes")) {
        said.add(process_name(row), note.get<std::string>());
      }
    }
  }
  for (const auto& [words, who] : said.all()) {
    notes.add(fmt::format("{}: {}", fmt::join(who, ", "), words));
  }
}

// --- what held the memory ------------------------------------------------------------------------

// The same process and GPU with each allocator: process numbers differ, their order does not.
struct Place {
  std::vector<const json*> rows;  // by run; nullptr where there is none
  std::string name;
};

std::vector<Place> places_of(const std::vector<FitsRun>& runs) {
  std::size_t most = 0;
  for (const FitsRun& run : runs) most = std::max(most, run.rows.size());
  std::vector<Place> places(most);
  for (std::size_t i = 0; i < most; ++i) {
    for (const FitsRun& run : runs) {
      const bool there = i < run.rows.size() && member(run.rows[i], "memory").is_object();
      places[i].rows.push_back(there ? &run.rows[i] : nullptr);
      if (there && places[i].name.empty()) {
        const json& row = run.rows[i];
        places[i].name = fmt::format("{}, GPU {}", process_name(row), row["device"].get<int>());
      }
    }
  }
  std::erase_if(places, [](const Place& place) {
    return std::all_of(place.rows.begin(), place.rows.end(),
                       [](const json* row) { return row == nullptr; });
  });
  return places;
}

struct Line {
  std::string name;
  std::vector<std::string> cells;
  bool operator==(const Line&) const = default;
};

std::vector<Line> lines_of_place(const Place& place) {
  std::vector<Line> lines;
  const auto add = [&](const std::string& name, const auto& cell, bool even_zero) {
    Line line{name, {}};
    bool any = even_zero;
    for (const json* const row : place.rows) {
      const json value = row == nullptr ? json() : cell(*row);
      any = any || (value.is_number() && number(value) != 0) || value.is_string();
      line.cells.push_back(value.is_string() ? value.get<std::string>()
                           : value.is_null() ? "-"
                                             : size_text(value));
    }
    if (any) lines.push_back(std::move(line));
  };
  add(
      "at",
      [](const json& row) {
        const json& memory = row["memory"];
        std::string text = memory["at"] == "peak" ? "its peak" : "its end";
        if (!memory["step"].is_null()) text += fmt::format(", step {}", number(memory["step"]));
        return json(text);
      },
      true);
  for (std::size_t i = 0; i < simgpu::kHolders; ++i) {
    const auto holder = static_cast<simgpu::Holder>((i + 1) % simgpu::kHolders);  // other: last
    const std::string name = simgpu::name_of(holder);
    add(
        holder_text(name), [&](const json& row) { return row["memory"]["holders"][name]; }, false);
  }
  add(
      "allocated", [](const json& row) { return row["memory"]["allocated_bytes"]; }, true);
  add(
      "fragmentation", [](const json& row) { return row["memory"]["fragmentation_bytes"]; }, true);
  add(
      "asked, and not had",
      [](const json& row) {
        return row["memory"]["at"] == "peak" ? json() : row["out_of_memory"]["asked_bytes"];
      },
      false);
  add(
      "context, libraries",
      [](const json& row) {
        const std::uint64_t used = number(row["peak_used_bytes"]);
        return json(used - std::min(used, number(row["peak_reserved_bytes"])));
      },
      false);
  return lines;
}

std::string held(const std::vector<FitsRun>& runs, bool colour, std::size_t columns) {
  // Ranks that do the same are one table.
  std::vector<std::pair<std::vector<Line>, std::vector<std::string>>> groups;
  for (const Place& place : places_of(runs)) {
    const std::vector<Line> lines = lines_of_place(place);
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == lines; });
    if (same == groups.end()) {
      groups.push_back({lines, {place.name}});
    } else {
      same->second.push_back(place.name);
    }
  }
  std::string text;
  for (const auto& [lines, names] : groups) {
    const std::string who =
        names.size() <= 3 ? fmt::format("{}", fmt::join(names, "; "))
                          : fmt::format("{} and {} others alike", names.front(), names.size() - 1);
    text += "\n";
    for (const std::string& line : gapless::tools::lines_of(who, columns)) text += line + "\n";
    std::vector<Table::Column> heads = {{"what held the memory", Align::left}};
    for (const FitsRun& run : runs) heads.push_back({run.allocator});
    Table table(heads);
    for (const Line& line : lines) {
      std::vector<Cell> cells = {{line.name}};
      for (const std::string& cell : line.cells) cells.push_back({cell});
      if (line.name == "allocated") table.gap();
      table.add(std::move(cells));
    }
    text += table.text(colour, columns);
  }
  return text;
}

// The row whose lines are told: the first that does not fit, else the one with the most memory.
const json* most_telling(const std::vector<FitsRun>& runs) {
  const json* best = nullptr;
  for (const FitsRun& run : runs) {
    for (const json& row : run.rows) {
      if (!member(row, "memory").is_object()) continue;
      const bool died = row["memory"]["at"] != "peak";
      if (best == nullptr || (died && (*best)["memory"]["at"] == "peak") ||
          (died == ((*best)["memory"]["at"] != "peak") &&
           number(row["memory"]["allocated_bytes"]) >
               number((*best)["memory"]["allocated_bytes"]))) {
        best = &row;
      }
    }
  }
  return best;
}

std::string place_text(const json& place) {
  const bool has_line = place["line"].is_string();
  const bool has_library = place["library_line"].is_string();
  if (has_line && has_library) {
    return fmt::format("{}, in {}", place["line"].get<std::string>(),
                       place["library_line"].get<std::string>());
  }
  if (has_line) return place["line"];
  return has_library ? "in " + place["library_line"].get<std::string>() : "(line not known)";
}

std::string by_line(const std::vector<FitsRun>& runs, bool colour, std::size_t columns) {
  const json* const row = most_telling(runs);
  if (row == nullptr || (*row)["memory"]["places"].empty()) return {};
  Table table({{"held"},
               {"blocks"},
               {"what", Align::left},
               {fmt::format("asked for by (with {})", (*row)["asked_allocator"].get<std::string>()),
                Align::left, true}});
  std::size_t shown = 0;
  for (const json& place : (*row)["memory"]["places"]) {
    if (shown++ == kPlacesShown) break;
    table.add({{size_text(place["bytes"])},
               {with_commas(number(place["blocks"]))},
               {holder_text(place["holder"])},
               {place_text(place)}});
  }
  return "\n" + table.text(colour, columns);
}

// --- beside the GPU's memory ---------------------------------------------------------------------

void add_host(Notes& notes, const std::vector<FitsRun>& runs) {
  for (const FitsRun& run : runs) {
    std::uint64_t pinned = 0;
    std::uint64_t managed = 0;
    std::uint64_t resident = 0;
    std::uint64_t shared = 0;
    std::set<json> processes;
    for (const json& row : run.rows) {
      const json host = member(row, "host");
      if (!host.is_object() || !processes.insert(row["pid"]).second) continue;
      pinned += number(host["peak_pinned_bytes"]);
      managed += number(host["peak_managed_bytes"]);
      resident += number(host["peak_resident_bytes"]);
      shared += number(host["peak_shared_bytes"]);
    }
    if (resident == 0) continue;
    notes.add(fmt::format(
        "host memory with {}: {} resident at its peak{}{}; {} pinned at its peak", run.allocator,
        format_bytes(resident), processes.size() > 1 ? " (all processes together)" : "",
        shared == 0 ? ""
                    : fmt::format(", up to {} of it the simulated GPU's own", format_bytes(shared)),
        format_bytes(pinned)));
    if (managed != 0) {
      notes.add(
          fmt::format("{} of managed memory (cudaMallocManaged) are not in the table: they "
                      "are on a GPU while it has room for them, and on the host else",
                      format_bytes(managed)));
    }
    return;  // the others do the same
  }
}

void add_data(Notes& notes, const std::vector<FitsRun>& runs) {
  const std::vector<json>& rows = runs.front().rows;
  constexpr std::size_t kHarmless = 3;
  Shared said;
  std::set<std::string>
      harmless;  // of which nothing larger could come: a search for a batch has many
  std::set<std::string> processes;
  for (const json& row : rows) {
    processes.insert(process_name(row));
    const json data = member(row, "data");
    if (!data.is_array()) continue;
    for (const json& loader : data) {
      const json text = member(loader, "text");
      if (!text.is_string()) continue;
      if (member(loader, "may_be_larger") == false) {
        harmless.insert(text);
        if (harmless.size() > kHarmless && !said.has(text)) continue;
      }
      said.add(process_name(row), text.get<std::string>());
    }
  }
  for (const auto& [words, who] : said.all()) {
    const bool all = who.size() == processes.size();
    notes.add((all ? "data: " : fmt::format("data of {}: ", fmt::join(who, ", "))) + words);
  }
  if (harmless.size() > kHarmless) {
    notes.add(fmt::format("data: and {} more loaders of whose items none are larger than those fed",
                          harmless.size() - kHarmless));
  }
  for (const FitsRun& run : runs) {
    for (const json& row : run.rows) {
      if (const std::string note = stopped_note(row); !note.empty()) notes.add(note);
    }
  }
}

void add_bounds(Notes& notes, const std::vector<FitsRun>& runs) {
  std::set<std::string> unknown;
  for (const FitsRun& run : runs) {
    for (const json& row : run.rows) {
      for (const json& library : member(row, "unknown_workspaces")) unknown.insert(library);
    }
  }
  if (!unknown.empty()) {
    notes.add(fmt::format(
        "peaks are lower bounds, and headroom is at most what is said: workspaces of {} are not "
        "counted",
        fmt::join(unknown, ", ")));
  }
}

void add_last_words(std::string& text, const std::vector<FitsRun>& runs, std::size_t columns) {
  for (const FitsRun& run : runs) {
    const bool used_no_gpu = run.rows.size() == 1 && run.rows[0]["pid"].is_null();
    const bool failed = !run.fits() && (run.end.ended.status() != 0 || used_no_gpu);
    if (!failed || run.last_words.empty()) continue;
    text += fmt::format("\nthe program's last words (with {}):\n", run.allocator);
    for (const std::string& words : run.last_words) {
      for (const std::string& line : lines_of(terminal_text(words), columns - 2)) {
        text += "  " + line + "\n";
      }
    }
    return;  // with the others it says the same, mostly
  }
}

}  // namespace

std::string process_name(const json& row) {
  if (row["pid"].is_null()) return "-";
  return row["rank"].is_number() ? fmt::format("rank {}", row["rank"].get<int>())
                                 : fmt::format("{}", row["pid"].get<int>());
}

std::string text_of_verdicts(const std::vector<FitsRun>& runs, bool colour, std::size_t columns) {
  Notes reasons(columns);
  add_reasons(reasons, runs);
  return verdicts(runs, colour, columns) + reasons.text();
}

std::string text_of_remarks(const std::vector<FitsRun>& runs, std::size_t columns) {
  Notes more(columns);
  add_host(more, runs);
  add_data(more, runs);
  add_bounds(more, runs);
  std::string text;
  if (!more.text().empty()) text += "\n" + more.text();
  add_last_words(text, runs, columns);
  return text;
}

std::string text_of_fits(const std::vector<FitsRun>& runs, bool colour, std::size_t columns) {
  return text_of_verdicts(runs, colour, columns) + held(runs, colour, columns) +
         by_line(runs, colour, columns) + text_of_remarks(runs, columns);
}

}  // namespace gapless::tools
