// Search: what fits, for each allocator and each combination of settings.
//
//   --vary precision=fp32,bf16  --vary batch-size=1:64     the last one that ascends is searched,
//                                                          all others are tried with each value
//            native   expandable   gapless
//   fp32       -21-      -23-        -24-                  a Boundary each
//   bf16       -40-      -44-        -46-
//
// Their probes are run side by side, as cores and memory allow. The first of all is run alone: it
// says whether the program works at all, and how much host memory one takes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/left_behind.h"
#include "tools/search/boundary.h"
#include "tools/search/kept_results.h"
#include "tools/search/memory_estimate.h"
#include "tools/search/probe_result.h"
#include "tools/search/probes.h"
#include "tools/search/varied.h"
#include "tools/simulated_run.h"
#include "tools/temporary_folder.h"

namespace gapless::tools {

struct SearchOptions {
  SimulatedGpus gpus;
  std::vector<std::string> allocators = {"native", "expandable", "gapless"};
  std::string resume;
  double timeout_seconds = 600;
  std::size_t jobs = 0;  // 0: as many as there are processors, and one where ranks were started
};

/// One allocator with one combination.
struct SearchCell {
  std::string allocator;
  Setting setting;  // with 0 for what is searched
  Boundary boundary;
  std::map<std::size_t, ProbeResult> results;  // by index into the values of what is searched
  std::size_t combination = 0;

  /// The largest that is known to fit. None where what was found hangs on numbers that nobody
  /// knows.
  [[nodiscard]] std::optional<std::size_t> best() const;
};

class Search {
 public:
  Search(VariedCommand command, SearchOptions options);

  /// Called with each result as it comes, and, a few times a second, with none.
  using Told = std::function<void(const SearchCell* cell, std::size_t index)>;
  /// Runs probes until everything is answered. Returns the signal that broke it off, or 0. Throws
  /// InputError where the program fails at once, and not for lack of memory.
  int run(const Told& told);

  [[nodiscard]] const VariedCommand& command() const { return command_; }
  [[nodiscard]] const SearchOptions& options() const { return options_; }
  [[nodiscard]] const std::vector<SearchCell>& cells() const { return cells_; }
  /// Which one is searched: an index into what is varied.
  [[nodiscard]] std::size_t searched() const { return searched_; }
  /// The setting of a cell with that value of what is searched.
  [[nodiscard]] Setting setting(const SearchCell& cell, std::size_t index) const;
  /// Whether no more can be learnt of it.
  [[nodiscard]] bool is_done(const SearchCell& cell) const;
  [[nodiscard]] std::vector<std::string> running() const;
  [[nodiscard]] std::size_t probes_done() const { return probes_done_; }
  /// Where sizes followed from numbers that nobody knows: what a probe with the most there can be
  /// showed of that; empty where none was made.
  [[nodiscard]] const std::string& shown_by_most() const { return shown_by_most_; }

 private:
  // What a probe has that differs from what was asked; empty: nothing.
  static constexpr const char* kNoise = "noise";  // in place of numbers that nobody knows
  static constexpr const char* kMost = "most";    // the same
  static constexpr const char* kAgain = "again";  // nothing, but the run is another
  static constexpr const char* kOlder = "older";  // GPUs (older_gpu.h)
  struct Job {
    std::size_t cell = 0;
    std::size_t index = 0;
    std::unique_ptr<TemporaryFolder> folder;
    std::string variant;
  };

  [[nodiscard]] std::optional<std::ptrdiff_t> estimate(const SearchCell& cell) const;
  [[nodiscard]] std::vector<std::size_t> next(const SearchCell& cell) const;
  [[nodiscard]] bool waits(const SearchCell& cell) const;
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> wanted() const;
  [[nodiscard]] bool may_start(const Probes& probes) const;
  [[nodiscard]] nlohmann::json key(const SearchCell& cell, std::size_t index,
                                   const std::string& variant = "");
  void use_kept(const Told& told);
  void start(Probes& probes, std::size_t cell, std::size_t index, const std::string& variant = "");
  bool put_off(Probes& probes, const Job& job, const ProbeResult& result);
  ProbeResult decided_by_most(const Job& job, ProbeResult most);
  bool start_second_run(Probes& probes);
  bool start_with_other_numbers(Probes& probes);
  bool start_on_older_gpu(Probes& probes);
  bool start_or_use_kept(Probes& probes, std::size_t cell, const std::string& variant);
  void judge_by_second_run(std::size_t cell, std::size_t index, const std::string& variant,
                           ProbeResult again);
  void judge_by_older_gpus(std::size_t cell, const ProbeResult& again);
  void judge_by_other_numbers(const ProbeResult& first, const ProbeResult& again);
  void compare_allocators();
  void stop_unwanted(Probes& probes);
  void judge_by_steps(ProbeResult& result);
  void learn(std::size_t cell, std::size_t index, ProbeResult result, const Told& told);
  ProbeResult read_result(const Job& job, const Probes::Over& over) const;

  VariedCommand command_;
  SearchOptions options_;
  std::size_t searched_ = 0;
  std::vector<SearchCell> cells_;
  std::vector<MemoryEstimate> estimates_;  // by combination
  KeptResults kept_;
  StepsBefore steps_before_;
  FileMarks marks_;
  std::map<std::size_t, Job> jobs_;  // that run, by number
  std::size_t started_ = 0;
  std::size_t probes_done_ = 0;
  std::uint64_t host_bytes_each_ = 0;
  std::optional<ProbeResult> put_off_;  // until the same has been tried at the most
  std::string shown_by_most_;
  bool tried_other_numbers_ = false;
  bool tried_older_gpu_ = false;
  bool first_done_ = false;
  bool distributed_ = false;
};

}  // namespace gapless::tools
