// What Search does when all is found: the answers are tried once more, or compared with one
// another.
#include <algorithm>
#include <set>
#include <utility>

#include "tools/same_program.h"
#include "tools/search/search.h"
#include "tools/second_guess.h"

namespace gapless::tools {

// What was found is tried once more, as `fits` does, where the host read numbers that nobody knows,
// and, where no two allocators are compared, where numbers were drawn: one setting with one
// allocator, for all of them.
bool Search::start_second_run(Probes& probes) {
  if (tried_second_run_) return false;
  tried_second_run_ = true;
  const auto first_that = [&](const auto& wants) -> std::optional<std::size_t> {
    for (std::size_t at = 0; at < cells_.size(); ++at) {
      const auto best = cells_[at].best();
      if (best && wants(cells_[at].results.at(*best).as_run())) return at;
    }
    return {};
  };
  if (const auto at = first_that([&](const FitsRun& run) {
        return wants_second_guess({run}, options_.gpus) != nullptr;
      })) {
    return start_or_use_kept(probes, *at, "noise");
  }
  const bool compared = std::any_of(cells_.begin(), cells_.end(), [&](const SearchCell& cell) {
    return cell.allocator != cells_.front().allocator;
  });
  if (compared || options_.gpus.estimates) return false;
  const auto at = first_that([](const FitsRun& run) { return !drew_from(run).empty(); });
  return at && start_or_use_kept(probes, *at, kAgain);
}

// Whether it was begun.
bool Search::start_or_use_kept(Probes& probes, std::size_t cell, const std::string& unknown) {
  const std::size_t best = *cells_[cell].best();
  if (const auto kept = kept_.find(key(cells_[cell], best, unknown))) {
    judge_by_second_run(cell, best, unknown, *kept);
    return false;
  }
  start(probes, cell, best, unknown);
  return true;
}

void Search::judge_by_second_run(std::size_t cell, std::size_t index, const std::string& unknown,
                                 const ProbeResult& again) {
  ProbeResult& first = cells_[cell].results.at(index);
  if (unknown == "noise") {
    judge_by_other_numbers(first, again);
    return;
  }
  FitsRun run = first.as_run();
  run.allocator = cells_[cell].allocator;
  FitsRun other = again.as_run();
  other.allocator = run.allocator;
  judge_by_another_run(run, std::move(other));
  first.judge_anew(run);
}

void Search::judge_by_other_numbers(const ProbeResult& first, const ProbeResult& again) {
  const FitsRun one = first.as_run();
  const FitsRun other = again.as_run();
  for (SearchCell& cell : cells_) {
    const auto best = cell.best();
    if (!best) continue;
    std::vector<FitsRun> runs = {cell.results.at(*best).as_run()};
    judge_by_second_guess(runs, one, other);
    cell.results.at(*best).judge_anew(runs.front());
  }
}

// What was found is no answer where the program did something else with each allocator.
void Search::compare_allocators() {
  std::set<std::pair<std::size_t, std::size_t>> compared;
  for (const SearchCell& found : cells_) {
    const auto best = found.best();
    if (!best || !compared.emplace(found.combination, *best).second) continue;
    std::vector<SearchCell*> cells;
    std::vector<FitsRun> runs;
    for (SearchCell& cell : cells_) {
      if (cell.combination != found.combination || cell.results.count(*best) == 0) continue;
      cells.push_back(&cell);
      runs.push_back(cell.results.at(*best).as_run());
      runs.back().allocator = cell.allocator;
    }
    judge_by_one_another(runs, options_.gpus.estimates);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      ProbeResult& result = cells[i]->results.at(*best);
      if (result.probed == Probed::fits) result.judge_anew(runs[i]);
    }
  }
}

}  // namespace gapless::tools
