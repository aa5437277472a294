// What a program did on simulated GPUs with one allocator, judged for `fits`.
//
//   rows     one for each process and GPU: the dry run's (dryrun_rows.h), and what `fits` adds:
//            headroom, what held the memory, host memory, what of the data was seen
//   courses  of the same places: memory over time, where it was traced
//
// A verdict is "yes" only of a run that went to its end by itself (or to the step it was asked for)
// and whose sizes came from numbers that somebody knew.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "simgpu/memory_holders.h"
#include "tools/watched_program.h"

namespace gapless::tools {

/// What a process had on one GPU.
struct TracedMemory {
  simgpu::MemoryCourse course;
  std::vector<simgpu::MemorySite> sites;
  std::vector<simgpu::HeldBlock> blocks;  // where they were asked for
};

struct FitsRun {
  std::string allocator;
  /// At least one: where no process used a GPU, it says why there is nothing to say.
  nlohmann::json rows = nlohmann::json::array();
  std::vector<std::optional<TracedMemory>> memory;  // by row
  /// What the watch in Python told of each one's process (simgpu/python/watch_program.py), by row:
  /// objects with "program" and "changed".
  std::vector<nlohmann::json> told;
  /// The GPU of the machine that each row's process had, by row; none where no GPU was used.
  std::vector<int> installed;
  WatchedEnd end;
  std::vector<int> absent;  // ranks that were not to run
  double seconds = 0;
  /// The last lines that the program printed, where its output was kept apart.
  std::vector<std::string> last_words;

  /// Whether every process fits; nothing where that is not known, and none is known not to.
  [[nodiscard]] std::optional<bool> fits() const;
  /// 0 where every process fits; 3 where one does not, and where that is not known of a program
  /// that ended well or was stopped; else the program's own.
  [[nodiscard]] int exit_status() const;
};

/// Of a program that somebody else wanted to end: nobody knows what it would have come to, also
/// where it took that for a good end.
void judge_end(nlohmann::json& row, const WatchedEnd& end);

/// Says what was left of each GPU, which its processes share, of rows that fit.
void add_headroom(FitsRun& run);

/// Of the rows of another run, that of the same process and GPU; null where there is none.
/// Processes without a rank come in the order in which they began.
const nlohmann::json* counterpart(const nlohmann::json& rows, std::size_t at,
                                  const nlohmann::json& row);

struct Judging {
  bool worst_case = false;  // the longest items were asked for
  bool blocks = false;      // each block is wanted
  bool estimates = false;   // sizes that nobody knows are taken as they came
};

/// Of what a run left in its folder and, where that is not empty, in the file of its output.
FitsRun judge_run(const std::string& allocator, const std::string& program,
                  const std::filesystem::path& reports, const std::filesystem::path& output,
                  const WatchedEnd& end, const Judging& judging);

}  // namespace gapless::tools
