#include "bench/corpus/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace gapless::bench {
namespace {

using nlohmann::json;

constexpr Figure figure_at(std::size_t i) { return static_cast<Figure>(i); }

// The least value that so large a part of all do not exceed.
double at_part(const std::vector<double>& sorted, double part) {
  const double place = std::ceil(part * static_cast<double>(sorted.size()) - 1e-9);
  return sorted[static_cast<std::size_t>(std::max(place, 1.0)) - 1];
}

std::string key_of(const Table& table) {
  return std::string(kGroupNames[static_cast<std::size_t>(table.group)]) +
         (table.large_only ? ", above 1 GB" : ", all");
}

Table table_of(const std::vector<const ProgramFigures*>& programs, Group group, bool large_only) {
  Table table;
  table.group = group;
  table.large_only = large_only;
  table.programs = programs.size();
  std::map<std::string, std::array<std::vector<double>, kFigures>> values;
  for (const ProgramFigures* program : programs) {
    for (const auto& [allocator, figures] : program->by_allocator) {
      for (std::size_t i = 0; i < kFigures; ++i) {
        if (figures.values[i]) values[allocator][i].push_back(*figures.values[i]);
      }
    }
    const auto least = [&](const char* allocator) -> std::optional<double> {
      const auto found = program->by_allocator.find(allocator);
      return found == program->by_allocator.end() ? std::nullopt : found->second[Figure::least];
    };
    const auto ours = least("gapless");
    const auto native = least("native");
    const auto expandable = least("expandable");
    if (!ours || !native || !expandable) continue;
    ++table.compared;
    if (*ours <= std::min(*native, *expandable)) ++table.never_more;
  }
  for (auto& [allocator, figures] : values) {
    for (std::size_t i = 0; i < kFigures; ++i) {
      if (!figures[i].empty()) table.by_allocator[allocator][i] = spread_of(std::move(figures[i]));
    }
  }
  return table;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {values.size(), sum / static_cast<double>(values.size()), at_part(values, 0.9),
          at_part(values, 0.99), values.back()};
}

std::vector<Table> tables_of(const std::vector<ProgramFigures>& programs) {
  std::vector<Table> tables;
  for (const Group group : {Group::seen, Group::unseen, Group::recordings}) {
    for (const bool large_only : {true, false}) {
      std::vector<const ProgramFigures*> chosen;
      for (const ProgramFigures& program : programs) {
        if (program.group != group) continue;
        if (large_only && program.peak_allocated_bytes <= kLargeProgramBytes) continue;
        chosen.push_back(&program);
      }
      if (chosen.empty()) continue;
      if (group == Group::unseen && chosen.size() < kFewestUnseen) continue;
      tables.push_back(table_of(chosen, group, large_only));
    }
  }
  return tables;
}

json to_json(const std::vector<Table>& tables, const json& of) {
  json all = json::object();
  for (const Table& table : tables) {
    json entry = {{"programs", table.programs}};
    if (table.compared != 0) {
      entry["least_never_more_than_better_peer"] = {{"programs", table.never_more},
                                                    {"of", table.compared}};
    }
    for (const auto& [allocator, spreads] : table.by_allocator) {
      json figures = json::object();
      for (std::size_t i = 0; i < kFigures; ++i) {
        if (!spreads[i]) continue;
        figures[std::string(facts_of(figure_at(i)).key)] = {{"programs", spreads[i]->programs},
                                                            {"mean", spreads[i]->mean},
                                                            {"p90", spreads[i]->p90},
                                                            {"p99", spreads[i]->p99},
                                                            {"worst", spreads[i]->worst}};
      }
      entry["allocators"][allocator] = std::move(figures);
    }
    all[key_of(table)] = std::move(entry);
  }
  return {{"of", of}, {"tables", std::move(all)}};
}

json rows_to_json(const std::vector<ProgramFigures>& programs) {
  json rows = json::array();
  for (const ProgramFigures& program : programs) {
    if (program.group == Group::unseen) continue;
    json row = {{"program", program.name},
                {"group", kGroupNames[static_cast<std::size_t>(program.group)]},
                {"events", program.events},
                {"streams", program.streams},
                {"peak_allocated_bytes", program.peak_allocated_bytes}};
    for (const auto& [allocator, figures] : program.by_allocator) {
      for (std::size_t i = 0; i < kFigures; ++i) {
        if (figures.values[i]) {
          row["allocators"][allocator][std::string(facts_of(figure_at(i)).key)] =
              *figures.values[i];
        }
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::optional<Spread> kept_spread(const json& kept, const Table& table,
                                  const std::string& allocator, Figure figure) {
  const json* at = &kept;
  for (const std::string& key : {std::string("tables"), key_of(table), std::string("allocators"),
                                 allocator, std::string(facts_of(figure).key)}) {
    if (!at->is_object() || !at->contains(key)) return {};
    at = &(*at)[key];
  }
  Spread spread;
  const auto read = [&](const char* key, double& into) {
    if (!at->is_object() || !at->contains(key) || !(*at)[key].is_number()) return false;
    into = (*at)[key].get<double>();
    return true;
  };
  double count = 0;
  if (!read("programs", count) || !read("mean", spread.mean) || !read("p90", spread.p90) ||
      !read("p99", spread.p99) || !read("worst", spread.worst)) {
    return {};
  }
  spread.programs = static_cast<std::uint64_t>(std::max(count, 0.0));
  return spread;
}

std::string with_difference(double now, std::optional<double> before, int digits) {
  std::string text = fmt::format("{:.{}f}", now, digits);
  if (!before || fmt::format("{:.{}f}", *before, digits) == text) return text;
  return text + fmt::format(" ({:+.{}f})", now - *before, digits);
}

}  // namespace gapless::bench
