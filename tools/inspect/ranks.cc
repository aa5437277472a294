#include "tools/inspect/ranks.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using In = Outlier::In;

constexpr std::size_t kFewestRanks = 3;
constexpr double kStandsOut = 0.05;  // of the median
constexpr double kTimesMostly = 4;   // what ranks differ by mostly
constexpr std::size_t kPlaces = 3;   // told of a rank that stands out

// Of an even number the lower of the two in the middle, so that it is some rank's.
std::uint64_t median_of(std::vector<std::uint64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::uint64_t distance(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; }

std::optional<std::uint64_t> value_of(const Rank& rank, In in) {
  switch (in) {
    case In::allocated:
      return rank.peak_allocated_bytes;
    case In::reserved:
      return rank.peak_reserved_bytes;
    case In::lost:
      return rank.lost_bytes;
  }
  return {};
}

const char* word_of(In in) {
  return in == In::allocated ? "allocated" : in == In::reserved ? "reserved" : "not_in_use";
}

// The median of what ranks tell, and those that stand out from it. What is lost is measured
// against the memory that it is lost of: a median of next to nothing says little.
std::optional<std::uint64_t> compare(RankComparison& comparison, In in) {
  std::vector<std::uint64_t> values;
  std::vector<std::size_t> whose;
  for (std::size_t i = 0; i < comparison.ranks.size(); ++i) {
    if (const auto value = value_of(comparison.ranks[i], in)) {
      values.push_back(*value);
      whose.push_back(i);
    }
  }
  if (values.empty()) return {};
  const std::uint64_t median = median_of(values);
  if (values.size() < kFewestRanks) return median;
  std::vector<std::uint64_t> distances;
  distances.reserve(values.size());
  for (const std::uint64_t value : values) distances.push_back(distance(value, median));
  const std::uint64_t whole =
      in == In::lost ? comparison.median_reserved_bytes.value_or(median) : median;
  const double far = std::max(kStandsOut * static_cast<double>(whole),
                              kTimesMostly * static_cast<double>(median_of(distances)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<double>(distances[i]) <= far) continue;
    comparison.outliers.push_back({whose[i], in, values[i], median});
  }
  return median;
}

// The folder that all lie in.
std::filesystem::path common_folder_of(const std::vector<Rank>& ranks) {
  std::filesystem::path common = std::filesystem::path(ranks.front().file).parent_path();
  const auto holds = [&](const Rank& rank) {
    const std::filesystem::path folder = std::filesystem::path(rank.file).parent_path();
    return std::mismatch(common.begin(), common.end(), folder.begin(), folder.end()).first ==
           common.end();
  };
  while (!common.empty() && common != common.parent_path() &&
         !std::all_of(ranks.begin(), ranks.end(), holds)) {
    common = common.parent_path();
  }
  return common;
}

// Files of one name in several folders, and several devices of one file.
void tell_apart(std::vector<Rank>& ranks) {
  if (ranks.empty()) return;
  std::map<std::string, int> files;
  std::map<std::string, std::string> file_of;
  bool alike = false;
  for (const Rank& rank : ranks) {
    ++files[rank.file];
    alike = alike || file_of.emplace(rank.name, rank.file).first->second != rank.file;
  }
  const std::filesystem::path common = common_folder_of(ranks);
  for (Rank& rank : ranks) {
    if (alike) {
      const std::filesystem::path folder = std::filesystem::path(rank.file).parent_path();
      rank.name = (folder.lexically_relative(common) / rank.name).lexically_normal().string();
    }
    if (files[rank.file] > 1) rank.name += fmt::format(" gpu{}", rank.device);
  }
}

std::string bytes_or_dash(const std::optional<std::uint64_t>& bytes) {
  return bytes ? format_bytes(*bytes) : "-";
}

// "rank2 allocates 9.10 GiB, where the median of 8 is 7.20 GiB, and reserves ...".
std::string outlier_text(const RankComparison& comparison, std::size_t rank) {
  std::string text = comparison.ranks[rank].name + " stands out: it ";
  bool first = true;
  bool more = false;
  for (const Outlier& outlier : comparison.outliers) {
    if (outlier.rank != rank) continue;
    const char* const does = outlier.in == In::allocated  ? "allocates"
                             : outlier.in == In::reserved ? "reserves"
                                                          : "leaves unused";
    text += fmt::format("{}{} {}, where the median{} is {}", first ? "" : "; it ", does,
                        format_bytes(outlier.bytes),
                        first ? fmt::format(" of {}", comparison.ranks.size()) : "",
                        format_bytes(outlier.median_bytes));
    more = more || (outlier.in == In::allocated && outlier.bytes > outlier.median_bytes);
    first = false;
  }
  text += ".";
  if (!more) return text;
  const std::vector<GroupChange> places = more_in(comparison, rank);
  const bool sites = comparison.ranks[rank].places_are_sites;
  for (std::size_t i = 0; i < std::min(kPlaces, places.size()); ++i) {
    text += fmt::format("{}{} more {} {}",
                        i == 0 ? fmt::format(" Compared with {}, it holds ",
                                             comparison.ranks[comparison.typical].name)
                               : ", ",
                        format_bytes(static_cast<std::uint64_t>(places[i].grew_by())),
                        sites ? "allocated at" : "in blocks of",
                        places[i].name.empty() ? "lines that were not recorded" : places[i].name);
  }
  return places.empty() ? text : text + ".";
}

std::string nobody_text(const RankComparison& comparison) {
  const auto [least, most] = std::minmax_element(
      comparison.ranks.begin(), comparison.ranks.end(),
      [](const Rank& a, const Rank& b) { return a.peak_allocated_bytes < b.peak_allocated_bytes; });
  return fmt::format("None of the {} stands out: they allocate {} to {}.", comparison.ranks.size(),
                     format_bytes(least->peak_allocated_bytes),
                     format_bytes(most->peak_allocated_bytes));
}

}  // namespace

Rank rank_of(const MomentReport& report, const std::string& file) {
  Rank rank;
  rank.name = std::filesystem::path(file).stem().string();
  rank.file = file;
  rank.source = report.state.source;
  rank.device = report.device;
  rank.at = report.at;
  rank.reserved_at_moment_bytes = report.sums.reserved_bytes;
  if (report.has_events) {
    rank.peak_allocated_bytes = report.moments.at_peak.allocated_bytes;
    if (report.reserved_known) {
      rank.peak_reserved_bytes = report.moments.at_reserved_peak.reserved_bytes;
    }
    rank.ended_out_of_memory = report.moments.ended_with_oom;
  } else {
    rank.peak_allocated_bytes = report.sums.allocated_bytes;
    rank.peak_reserved_bytes = report.sums.reserved_bytes;
  }
  if (rank.peak_reserved_bytes) {
    rank.lost_bytes =
        report.sums.reserved_bytes - std::min(report.sums.reserved_bytes, report.sums.active_bytes);
  }
  rank.places = group_blocks(report.state, GroupBy::line, nullptr, nullptr);
  rank.places_are_sites = std::any_of(rank.places.begin(), rank.places.end(),
                                      [](const BlockGroup& group) { return !group.name.empty(); });
  if (!rank.places_are_sites) {
    rank.places = group_blocks(report.state, GroupBy::size, nullptr, nullptr);
  }
  return rank;
}

RankComparison compare_ranks(std::vector<Rank> ranks) {
  RankComparison comparison;
  comparison.ranks = std::move(ranks);
  tell_apart(comparison.ranks);
  comparison.median_allocated_bytes = compare(comparison, In::allocated).value_or(0);
  comparison.median_reserved_bytes = compare(comparison, In::reserved);
  comparison.median_lost_bytes = compare(comparison, In::lost);
  std::stable_sort(comparison.outliers.begin(), comparison.outliers.end(),
                   [](const Outlier& a, const Outlier& b) { return a.rank < b.rank; });
  for (std::size_t i = 0; i < comparison.ranks.size(); ++i) {
    if (comparison.ranks[i].peak_allocated_bytes != comparison.median_allocated_bytes) continue;
    comparison.typical = i;
    break;
  }
  return comparison;
}

std::vector<GroupChange> more_in(const RankComparison& comparison, std::size_t rank) {
  const Rank& typical = comparison.ranks[comparison.typical];
  const Rank& other = comparison.ranks[rank];
  if (typical.places_are_sites != other.places_are_sites) return {};
  std::vector<GroupChange> changes = changes_between(typical.places, other.places);
  std::erase_if(changes, [](const GroupChange& change) { return change.grew_by() <= 0; });
  return changes;
}

std::string ranks_text(const RankComparison& comparison, bool colour, std::size_t columns) {
  const bool any_failed = std::any_of(comparison.ranks.begin(), comparison.ranks.end(),
                                      [](const Rank& rank) { return rank.ended_out_of_memory; });
  const bool any_reserved = comparison.median_reserved_bytes.has_value();
  std::vector<Table::Column> heads = {{"rank", Table::Align::left, true}, {"peak allocated"}};
  if (any_reserved) {
    heads.insert(heads.end(), {{"peak reserved"}, {"not in use"}, {"of reserved"}});
  }
  if (any_failed) heads.push_back({"ended", Table::Align::left});
  Table table(heads);
  const auto colour_of = [&](std::size_t rank, In in) {
    for (const Outlier& outlier : comparison.outliers) {
      if (outlier.rank != rank || outlier.in != in) continue;
      return outlier.bytes > outlier.median_bytes ? Colour::bad : Colour::good;
    }
    return Colour::none;
  };
  for (std::size_t i = 0; i < comparison.ranks.size(); ++i) {
    const Rank& rank = comparison.ranks[i];
    const Colour lost = colour_of(i, In::lost);
    std::vector<Cell> row = {
        {rank.name}, {format_bytes(rank.peak_allocated_bytes), colour_of(i, In::allocated)}};
    if (any_reserved) {
      row.push_back({bytes_or_dash(rank.peak_reserved_bytes), colour_of(i, In::reserved)});
      row.push_back({bytes_or_dash(rank.lost_bytes), lost});
      row.push_back(
          {rank.lost_bytes ? percent_of(*rank.lost_bytes, rank.reserved_at_moment_bytes) : "-",
           lost});
    }
    if (any_failed) row.push_back({rank.ended_out_of_memory ? "out of memory" : "", Colour::bad});
    table.add(std::move(row));
  }
  std::string text = table.text(colour, columns) + "\n";
  std::size_t told = SIZE_MAX;
  for (const Outlier& outlier : comparison.outliers) {
    if (outlier.rank != told) text += paragraph(outlier_text(comparison, outlier.rank));
    told = outlier.rank;
  }
  if (told == SIZE_MAX && comparison.ranks.size() >= kFewestRanks) {
    text += paragraph(nobody_text(comparison));
  }
  return text;
}

json ranks_json(const RankComparison& comparison) {
  const auto or_null = [](const std::optional<std::uint64_t>& bytes) {
    return bytes ? json(*bytes) : json();
  };
  json ranks = json::array();
  for (const Rank& rank : comparison.ranks) {
    ranks.push_back({{"rank", rank.name},
                     {"file", rank.file},
                     {"source", rank.source},
                     {"device", rank.device},
                     {"at", rank.at},
                     {"peak_allocated_bytes", rank.peak_allocated_bytes},
                     {"peak_reserved_bytes", or_null(rank.peak_reserved_bytes)},
                     {"not_in_use_bytes", or_null(rank.lost_bytes)},
                     {"ended_out_of_memory", rank.ended_out_of_memory}});
  }
  json outliers = json::array();
  for (const Outlier& outlier : comparison.outliers) {
    json entry = {{"rank", comparison.ranks[outlier.rank].name},
                  {"in", word_of(outlier.in)},
                  {"bytes", outlier.bytes},
                  {"median_bytes", outlier.median_bytes}};
    json more = json::array();
    for (const GroupChange& change : more_in(comparison, outlier.rank)) {
      more.push_back({{"name", change.name}, {"more_bytes", change.grew_by()}});
    }
    entry["holds_more"] = std::move(more);
    outliers.push_back(std::move(entry));
  }
  return {{"ranks", std::move(ranks)},
          {"median",
           {{"peak_allocated_bytes", comparison.median_allocated_bytes},
            {"peak_reserved_bytes", or_null(comparison.median_reserved_bytes)},
            {"not_in_use_bytes", or_null(comparison.median_lost_bytes)}}},
          {"outliers", std::move(outliers)}};
}

}  // namespace gapless::tools
