// Summary: figures over many programs as mean, p90, p99 and worst, by group, and how they differ
// from those of the run before.
//
//   seen          each program may be shown
//   unseen        sums alone; nothing where fewer than ten programs would be told by them
//   recordings    runs that were recorded
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/corpus/figures.h"

namespace gapless::bench {

enum class Group : std::uint8_t { seen, unseen, recordings };
inline constexpr std::array<const char*, 3> kGroupNames = {"seen", "unseen", "recordings"};

inline constexpr std::size_t kFewestUnseen = 10;
/// Programs below this are told apart: little memory makes large percentages.
inline constexpr std::uint64_t kLargeProgramBytes = 1'000'000'000;

struct ProgramFigures {
  std::string name;
  Group group = Group::seen;
  std::uint64_t events = 0;
  std::uint64_t streams = 1;
  std::uint64_t peak_allocated_bytes = 0;
  std::map<std::string, FigureValues> by_allocator;
};

struct Spread {
  std::uint64_t programs = 0;  // that have the figure
  double mean = 0;
  double p90 = 0;
  double p99 = 0;
  double worst = 0;

  bool operator==(const Spread&) const = default;
};
/// p90: the least value that nine tenths of all do not exceed.
Spread spread_of(std::vector<double> values);

/// Of one group's programs, all or the large ones.
struct Table {
  Group group = Group::seen;
  bool large_only = false;
  std::uint64_t programs = 0;
  std::map<std::string, std::array<std::optional<Spread>, kFigures>> by_allocator;
  /// In how many programs gapless's least capacity is no more than the better of the two of
  /// PyTorch's, and in how many all three are known.
  std::uint64_t never_more = 0;
  std::uint64_t compared = 0;
};

/// The tables of all groups that have programs and may be told.
std::vector<Table> tables_of(const std::vector<ProgramFigures>& programs);

/// What is kept of a run: its tables and which programs they are of. No program of "unseen" is in
/// it; those of the others are where `rows` says so.
nlohmann::json to_json(const std::vector<Table>& tables, const nlohmann::json& of);
nlohmann::json rows_to_json(const std::vector<ProgramFigures>& programs);

/// A kept run's spread of the same group, programs, allocator and figure; nothing where it has
/// none.
std::optional<Spread> kept_spread(const nlohmann::json& kept, const Table& table,
                                  const std::string& allocator, Figure figure);

/// "0.31 (-0.02)": a value, with how it differs from the one before where it does.
std::string with_difference(double now, std::optional<double> before, int digits);

}  // namespace gapless::bench
