// What Search does when all is found: the answers are tried once more, or compared with one
// another.
#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "tools/older_gpu.h"
#include "tools/same_program.h"
#include "tools/search/search.h"
#include "tools/second_guess.h"

namespace gapless::tools {

// What was found is tried once more, as `fits` does: one setting with one allocator, for all of
// them. Returns whether a probe was begun.
bool Search::start_second_run(Probes& probes) {
  return start_with_other_numbers(probes) || start_on_older_gpu(probes);
}

// Where the host read numbers that nobody knows, and, where no two allocators are compared, where
// numbers were drawn.
bool Search::start_with_other_numbers(Probes& probes) {
  if (tried_other_numbers_) return false;
  tried_other_numbers_ = true;
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
    return start_or_use_kept(probes, *at, kNoise);
  }
  const bool compared = std::any_of(cells_.begin(), cells_.end(), [&](const SearchCell& cell) {
    return cell.allocator != cells_.front().allocator;
  });
  if (compared || options_.gpus.estimates) return false;
  const auto at = first_that([](const FitsRun& run) { return !drew_from(run).empty(); });
  return at && start_or_use_kept(probes, *at, kAgain);
}

// Where attention ran in kernels that older GPUs lack, and none was named: the setting that takes
// most, for it is there that scores count.
bool Search::start_on_older_gpu(Probes& probes) {
  if (tried_older_gpu_) return false;
  tried_older_gpu_ = true;
  std::optional<std::size_t> at;
  double most = 0;
  for (std::size_t each = 0; each < cells_.size(); ++each) {
    const auto best = cells_[each].best();
    if (!best) continue;
    const ProbeResult& result = cells_[each].results.at(*best);
    const FitsRun run = result.as_run();
    if (wants_older_gpu(std::span(&run, 1)) == nullptr || result.most_allocated() <= most) continue;
    most = result.most_allocated();
    at = each;
  }
  return at && start_or_use_kept(probes, *at, kOlder);
}

bool Search::start_or_use_kept(Probes& probes, std::size_t cell, const std::string& variant) {
  const std::size_t best = *cells_[cell].best();
  if (const auto kept = kept_.find(key(cells_[cell], best, variant))) {
    judge_by_second_run(cell, best, variant, *kept);
    return false;
  }
  start(probes, cell, best, variant);
  return true;
}

void Search::judge_by_second_run(std::size_t cell, std::size_t index, const std::string& variant,
                                 ProbeResult again) {
  judge_by_steps(again);
  ProbeResult& first = cells_[cell].results.at(index);
  if (variant == kNoise) {
    judge_by_other_numbers(first, again);
    return;
  }
  if (variant == kOlder) {
    judge_by_older_gpus(cell, again);
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

void Search::judge_by_older_gpus(std::size_t cell, const ProbeResult& again) {
  std::vector<FitsRun> runs;
  std::vector<ProbeResult*> found;
  std::size_t first = 0;
  for (SearchCell& each : cells_) {
    const auto best = each.best();
    if (!best) continue;
    if (&each == &cells_[cell]) first = runs.size();
    found.push_back(&each.results.at(*best));
    runs.push_back(found.back()->as_run());
  }
  FitsRun other = again.as_run();
  other.allocator = cells_[cell].allocator;
  const std::size_t best = *cells_[cell].best();
  judge_by_older_gpu(runs, runs[first], other,
                     fmt::format("{}, {}", other.allocator,
                                 text_of(command_.varied(), setting(cells_[cell], best))));
  for (std::size_t i = 0; i < runs.size(); ++i) found[i]->judge_anew(runs[i]);
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
