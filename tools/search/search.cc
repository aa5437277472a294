#include "tools/search/search.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/text_of_file.h"
#include "allocator/gapless.h"
#include "tools/estimates_from.h"
#include "tools/last_words.h"
#include "tools/older_gpu.h"
#include "tools/search/host_memory.h"
#include "tools/second_guess.h"
#include "tools/torch_settings.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Host memory that each probe is given beyond the most that one has taken.
constexpr double kSpare = 1.2;
constexpr std::size_t kMostCells = 10'000;

// The last one that ascends; where none does, the last.
std::size_t which_is_searched(const std::vector<Varied>& varied) {
  for (std::size_t i = varied.size(); i-- > 0;) {
    if (varied[i].ascends()) return i;
  }
  return varied.size() - 1;
}

// Every combination of the others' values, the first one's changing slowest.
std::vector<Setting> combinations_of(const std::vector<Varied>& varied, std::size_t searched) {
  std::vector<Setting> all = {Setting(varied.size(), 0)};
  for (std::size_t i = 0; i < varied.size(); ++i) {
    if (i == searched) continue;
    if (all.size() * varied[i].values.size() > kMostCells) {
      throw InputError(
          fmt::format("--vary: more than {} combinations to search for each", kMostCells));
    }
    std::vector<Setting> more;
    for (const Setting& setting : all) {
      for (std::size_t value = 0; value < varied[i].values.size(); ++value) {
        more.push_back(setting);
        more.back()[i] = value;
      }
    }
    all = std::move(more);
  }
  return all;
}

}  // namespace

std::optional<std::size_t> SearchCell::best() const {
  const auto best = boundary.best();
  return best && results.at(*best).probed == Probed::fits ? best : std::nullopt;
}

Search::Search(VariedCommand command, SearchOptions options)
    : command_(std::move(command)), options_(std::move(options)), kept_(options_.resume) {
  const std::vector<Varied>& varied = command_.varied();
  searched_ = which_is_searched(varied);
  const Varied& searched = varied[searched_];
  // What does not ascend has no boundary: each value is a combination of its own.
  const bool ascends = searched.ascends();
  const std::vector<Setting> combinations =
      combinations_of(varied, ascends ? searched_ : varied.size());
  for (std::size_t i = 0; i < combinations.size(); ++i) {
    for (const std::string& allocator : options_.allocators) {
      cells_.push_back({allocator,
                        combinations[i],
                        Boundary(ascends ? searched.numbers : std::vector<double>{0}),
                        {},
                        i});
    }
  }
  estimates_.resize(combinations.size());
}

Setting Search::setting(const SearchCell& cell, std::size_t index) const {
  Setting setting = cell.setting;
  if (command_.varied()[searched_].ascends()) setting[searched_] = index;
  return setting;
}

std::optional<std::ptrdiff_t> Search::estimate(const SearchCell& cell) const {
  return estimates_[cell.combination].largest(cell.boundary.values());
}

std::vector<std::size_t> Search::next(const SearchCell& cell) const {
  // One allocator's look at larger settings shows whether the program's memory rises with them; the
  // others look again where it does not.
  const auto first =
      cells_.begin() + static_cast<std::ptrdiff_t>(cell.combination * options_.allocators.size());
  const bool doubt = &*first == &cell || !first->boundary.failures_below_best().empty();
  return cell.boundary.next(estimate(cell), doubt);
}

bool Search::is_done(const SearchCell& cell) const { return next(cell).empty(); }

// Those with other allocators begin where the first one of their combination has shown what the
// program takes.
bool Search::waits(const SearchCell& cell) const {
  const SearchCell& first = cells_[cell.combination * options_.allocators.size()];
  if (&first == &cell || cell.boundary.tried() != 0) return false;
  return first.boundary.tried() < 2 && !is_done(first);
}

// What each needs before what any may need.
std::vector<std::pair<std::size_t, std::size_t>> Search::wanted() const {
  std::vector<std::vector<std::size_t>> lists;
  std::size_t longest = 0;
  for (const SearchCell& cell : cells_) {
    lists.push_back(waits(cell) ? std::vector<std::size_t>() : next(cell));
    longest = std::max(longest, lists.back().size());
  }
  std::vector<std::pair<std::size_t, std::size_t>> all;
  for (std::size_t rank = 0; rank < longest; ++rank) {
    for (std::size_t cell = 0; cell < lists.size(); ++cell) {
      if (rank < lists[cell].size()) all.emplace_back(cell, lists[cell][rank]);
    }
  }
  return all;
}

bool Search::may_start(const Probes& probes) const {
  if (probes.running() == 0) return true;
  if (!first_done_ || put_off_) return false;
  const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t most = options_.jobs != 0 ? options_.jobs : distributed_ ? 1 : processors;
  if (probes.running() >= most) return false;
  const auto each = static_cast<std::uint64_t>(static_cast<double>(host_bytes_each_) * kSpare);
  return available_host_bytes() >= each + probes.host_bytes_to_come(each);
}

// All that a result depends on, as far as it can be known.
json Search::key(const SearchCell& cell, std::size_t index, const std::string& variant) {
  const Setting setting = this->setting(cell, index);
  const std::vector<std::string> words = command_.with(setting);
  json values = json::object();
  for (std::size_t i = 0; i < setting.size(); ++i) {
    const Varied& varied = command_.varied()[i];
    values[varied.name] = varied.values[setting[i]];
  }
  return {{"version", gapless_version()},
          {"gpus", options_.gpus.gpus},
          {"context", options_.gpus.context},
          {"ranks", options_.gpus.ranks},
          {"strict", options_.gpus.strict},
          {"unknown", variant.empty() ? options_.gpus.unknown : variant},
          {"skew", options_.gpus.skew},
          {"estimates", options_.gpus.estimates},
          {"worst_case", options_.gpus.worst_case},
          {"steps", options_.gpus.steps},
          {"allocator", cell.allocator},
          {"conf", cell.allocator == "gapless" ? options_.gpus.conf : ""},
          {"torch_settings", torch_settings_for(cell.allocator, torch_settings_set())},
          {"folder", fs::current_path().string()},
          {"command", words},
          {"values", std::move(values)},
          {"files", marks_.of(words)}};
}

// One that made none may have found what an earlier one left.
void Search::judge_by_steps(ProbeResult& result) {
  FitsRun run = result.as_run();
  steps_before_.judge(run);
  if (result.probed == Probed::fits) result.judge_anew(run);
}

void Search::learn(std::size_t at, std::size_t index, ProbeResult result, const Told& told) {
  SearchCell& cell = cells_[at];
  judge_by_steps(result);
  cell.boundary.learn(index, result.probed);
  const std::vector<double>& values = cell.boundary.values();
  result.tell(estimates_[cell.combination], values[index]);
  host_bytes_each_ = std::max(host_bytes_each_, result.host_bytes);
  distributed_ = distributed_ || result.is_distributed();
  first_done_ = true;
  if (!result.kept) ++probes_done_;
  cell.results[index] = std::move(result);
  told(&cell, index);
}

void Search::use_kept(const Told& told) {
  if (options_.resume.empty()) return;
  for (bool any = true; any;) {
    any = false;
    for (const auto& [cell, index] : wanted()) {
      if (cells_[cell].boundary.result(index) != Probed::untried) continue;
      auto result = kept_.find(key(cells_[cell], index));
      if (!result) continue;
      learn(cell, index, std::move(*result), told);
      any = true;
    }
  }
}

void Search::start(Probes& probes, std::size_t cell, std::size_t index,
                   const std::string& variant) {
  Job job{cell, index, std::make_unique<TemporaryFolder>(), variant};
  const fs::path& folder = job.folder->path();
  std::vector<std::string> words = {
      fs::read_symlink("/proc/self/exe"),
      "dryrun",
      "--gpu",
      variant == kOlder ? older(options_.gpus).gpus : options_.gpus.gpus,
      "--allocator",
      cells_[cell].allocator,
      "--json",
      folder / "rows.json"};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--context", options_.gpus.context);
  add("--ranks", options_.gpus.ranks);
  if (cells_[cell].allocator == "gapless") add("--conf", options_.gpus.conf);
  if (options_.gpus.strict) words.emplace_back("--strict");
  const bool other_numbers = variant == kNoise || variant == kMost;
  add("--unknown", other_numbers ? variant : options_.gpus.unknown);
  add("--skew", fmt::format("{}", options_.gpus.skew));
  if (options_.gpus.estimates) words.emplace_back("--estimates");
  if (options_.gpus.worst_case) words.emplace_back("--worst-case");
  if (options_.gpus.steps != 0) add("--steps", std::to_string(options_.gpus.steps));
  words.emplace_back("--");
  const auto program = command_.with(setting(cells_[cell], index), folder);
  words.insert(words.end(), program.begin(), program.end());
  double limit = options_.timeout_seconds;
  if (!variant.empty() && variant != kMost) {
    const FitsRun first = cells_[cell].results.at(index).as_run();
    limit = std::min(limit, second_guess_limit_seconds(first));
  }
  Variables variables;
  if (variant == kNoise) {
    variables = {{"SIMGPU_CHOICES", choices_of(cells_[cell].results.at(index).as_run())}};
  }
  probes.start(started_, words, variables, folder / "output", limit);
  jobs_.emplace(started_++, std::move(job));
}

// What was begun in case it would be wanted, and is not.
void Search::stop_unwanted(Probes& probes) {
  const auto all = wanted();
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto& [id, what] = *job;
    if (!what.variant.empty() || cells_[what.cell].boundary.matters(what.index) ||
        std::find(all.begin(), all.end(), std::pair(what.cell, what.index)) != all.end()) {
      ++job;
      continue;
    }
    probes.stop(id);
    job = jobs_.erase(job);
  }
}

ProbeResult Search::read_result(const Job& job, const Probes::Over& over) const {
  const fs::path rows = job.folder->path() / "rows.json";
  std::optional<json> read;
  if (fs::exists(rows)) {
    json all = json::parse(text_of_file(rows), nullptr, false);
    if (all.is_array()) read = std::move(all);
  }
  return judged(read, cells_[job.cell].allocator, over,
                text_of_file(job.folder->path() / "output"));
}

// What fits but for sizes that nobody knows is tried again with the most there can be, once in a
// search; meanwhile nothing else begins.
bool Search::put_off(Probes& probes, const Job& job, const ProbeResult& result) {
  const bool may_try = options_.gpus.unknown == "zeros" && !options_.gpus.estimates;
  if (!may_try || !shown_by_most_.empty() || !result.fits_but_for_sizes()) return false;
  if (!put_off_) {
    put_off_ = result;
    start(probes, job.cell, job.index, kMost);
  }
  return true;  // or it waits for what that one shows
}

// Where that fits, all else is tried so; where it takes as much, sizes are taken as they come.
ProbeResult Search::decided_by_most(const Job& job, ProbeResult most) {
  ProbeResult result = *std::move(put_off_);
  put_off_.reset();
  const std::string setting =
      text_of(command_.varied(), this->setting(cells_[job.cell], job.index));
  if (most.probed == Probed::fits && !takes_less_than(result.as_run(), most.as_run())) {
    options_.gpus.unknown = "most";
    shown_by_most_ = "sizes that nobody knows are as large as they can be (--unknown most)";
    return most;
  }
  const bool bounded = std::all_of(most.rows.begin(), most.rows.end(), sizes_were_bounded);
  if (bounded && most.fits_but_for_sizes() &&
      took_as_much(result.most_allocated(), most.most_allocated())) {
    options_.gpus.estimates = true;
    shown_by_most_ = fmt::format(
        "with sizes that nobody knows as large as they can be (--unknown most) {} takes as much",
        setting);
    return with_sizes_accepted(std::move(result), cells_[job.cell].allocator);
  }
  shown_by_most_ =
      "settings with sizes that nobody knows are left out: with other numbers they take another "
      "amount of memory";
  result.reason += fmt::format("; with as many as there can be it is {}{}", most.verdict,
                               most.reason.empty() ? "" : ": " + most.reason);
  return result;
}

int Search::run(const Told& told) {
  use_kept(told);
  Probes probes;
  while (true) {
    stop_unwanted(probes);
    for (const auto& probe : wanted()) {
      if (!may_start(probes)) break;
      const bool runs = std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
        return std::pair(job.second.cell, job.second.index) == probe;
      });
      if (!runs) start(probes, probe.first, probe.second);
    }
    if (jobs_.empty() && !start_second_run(probes)) {
      compare_allocators();
      return 0;
    }
    const auto over = probes.wait();
    if (probes.told_to_end() != 0) return probes.told_to_end();
    told(nullptr, 0);
    if (!over) continue;
    const Job job = std::move(jobs_.at(over->id));
    jobs_.erase(over->id);
    ProbeResult result = read_result(job, *over);
    if (!job.variant.empty() && job.variant != kMost) {
      kept_.keep(key(cells_[job.cell], job.index, job.variant), result);
      ++probes_done_;
      judge_by_second_run(job.cell, job.index, job.variant, result);
      continue;
    }
    if (job.variant == kMost) {
      result = decided_by_most(job, std::move(result));
    } else if (put_off(probes, job, result)) {
      continue;
    }
    const SearchCell& cell = cells_[job.cell];
    if (!first_done_ && result.probed == Probed::not_known) {
      throw ProgramFailed(fmt::format("with {} ({}) it is not known whether it fits: {}",
                                      text_of(command_.varied(), setting(cell, job.index)),
                                      cell.allocator, result.reason),
                          lines_said(result.output));
    }
    kept_.keep(key(cell, job.index), result);
    learn(job.cell, job.index, std::move(result), told);
    use_kept(told);
  }
}

std::vector<std::string> Search::running() const {
  std::vector<std::string> texts;
  for (const auto& [id, job] : jobs_) {
    const SearchCell& cell = cells_[job.cell];
    const std::string how = job.variant.empty()     ? ""
                            : job.variant == kAgain ? " (once more)"
                            : job.variant == kOlder ? " (on older GPUs)"
                                                    : " (--unknown " + job.variant + ")";
    texts.push_back(fmt::format("{} {}{}", cell.allocator,
                                text_of(command_.varied(), setting(cell, job.index)), how));
  }
  return texts;
}

}  // namespace gapless::tools
