// Ranks: several recordings of one run beside each other, a line each, and who stands out.
//
//   rank    allocated   reserved  not in use
//   rank0    7.20 GiB   8.10 GiB    11.0 %
//   rank1    7.21 GiB   8.10 GiB    10.9 %
//   rank2    9.10 GiB  10.40 GiB    12.5 %     <- allocates 26 % more than the median
//
// One that differs from the median by a twentieth of it and by four times what ranks differ by
// mostly (the median of their distances) stands out: stages of a pipeline, which all differ, do
// not. Three ranks are needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/inspect/difference.h"
#include "tools/inspect/moment_report.h"

namespace gapless::tools {

/// What is compared of a rank.
struct Rank {
  std::string name;  // the file's, without its ending
  std::string file;
  std::string source;
  DeviceIndex device = 0;
  std::string at;                                    // the moment: "peak", "oom", ...
  std::uint64_t peak_allocated_bytes = 0;            // of a file without events: what it holds
  std::optional<std::uint64_t> peak_reserved_bytes;  // where the recording tells
  std::optional<std::uint64_t> lost_bytes;           // at the moment: reserved, and serves nobody
  std::uint64_t reserved_at_moment_bytes = 0;
  bool ended_out_of_memory = false;
  std::vector<BlockGroup> places;  // what is live at the moment, by site; else by size
  bool places_are_sites = false;
};
Rank rank_of(const MomentReport& report, const std::string& file);

/// A rank that stands out in one of these.
struct Outlier {
  enum class In : std::uint8_t { allocated, reserved, lost };
  std::size_t rank = 0;
  In in = In::allocated;
  std::uint64_t bytes = 0;
  std::uint64_t median_bytes = 0;
};

struct RankComparison {
  std::vector<Rank> ranks;  // in their order; names told apart by folders
  std::uint64_t median_allocated_bytes = 0;
  std::optional<std::uint64_t> median_reserved_bytes;  // of the ranks that tell
  std::optional<std::uint64_t> median_lost_bytes;
  std::vector<Outlier> outliers;  // by rank
  std::size_t typical = 0;        // the rank whose peak is the median
};
RankComparison compare_ranks(std::vector<Rank> ranks);

/// What such a rank holds more than the typical one, the most first.
std::vector<GroupChange> more_in(const RankComparison& comparison, std::size_t rank);

std::string ranks_text(const RankComparison& comparison, bool colour, std::size_t columns);
nlohmann::json ranks_json(const RankComparison& comparison);

}  // namespace gapless::tools
