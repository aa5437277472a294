// Ranks: of a program's ranks that all do the same, which run.
//
//   SIMGPU_RANKS=0      torchrun starts 8 workers: rank 0 runs, ranks 1 to 7 end at once, and well
//   rank 0 all-reduces  [own] [own] [own] ... [own]     as if they had come with the same
//
// Eight ranks of a large model take more memory of the host's than a laptop has. Where ranks differ
// in nothing but their part of the data, one has the peaks of all. Whether they do, only the user
// knows: who did not run is written down (SIMGPU_REPORT_DIR/absent.RANK) and told.
#pragma once

#include <set>
#include <string>

namespace gapless::simgpu {

class Ranks {
 public:
  /// "0", "0,7", "0-3,8"; empty: all. Throws std::invalid_argument, saying what is wrong.
  explicit Ranks(const std::string& text = "");

  [[nodiscard]] bool all() const { return listed_.empty(); }
  [[nodiscard]] bool run(int rank) const { return all() || listed_.contains(rank); }
  [[nodiscard]] std::size_t count() const { return listed_.size(); }

 private:
  std::set<int> listed_;
};

/// SIMGPU_RANKS; all where it is not set, or not to be understood.
const Ranks& ranks_from_environment();

/// A variable that launchers number ranks by (RANK, WORLD_SIZE); -1 where it is no such number.
int rank_variable(const char* name);

}  // namespace gapless::simgpu
