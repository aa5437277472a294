#include "tools/advise/advise.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "allocator/base/files.h"
#include "tools/advise/answers.h"
#include "tools/advise/room.h"
#include "tools/json_values.h"
#include "tools/left_behind.h"
#include "tools/same_program.h"
#include "tools/second_guess.h"
#include "tools/temporary_folder.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

class Adviser {
 public:
  explicit Adviser(AdviseOptions options) : options_(std::move(options)) {}

  Advice run() {
    advice_.runs.reserve(1 + simulated_allocators().size());  // subjects point into it
    advice_.runs.push_back(run_once(as_it_is(), options_.gpus, "as it is", true));
    if (fits_but_for_sizes(advice_.runs.front(), options_.gpus)) try_at_most();
    judge_by_other_numbers(advice_.runs.front(), as_it_is());
    judge_by_another_draw(advice_.runs.front(), as_it_is(), "as it is");
    const FitsRun& first = advice_.runs.front();
    advice_.as_is = subject_of(first);
    advice_.needed = advice_.as_is;
    advice_.complete = first.fits() == true;
    if (stopped(first)) return finish();
    if (first.fits() == false) {
      SimulatedGpus gpus = options_.gpus;
      gpus.gpus = with_room(gpus.gpus);
      advice_.roomy =
          std::make_unique<const FitsRun>(run_once(as_it_is(), gpus, "with room for it", true));
      const Subject subject = same_in(*advice_.roomy, advice_.as_is);
      if (subject.run != nullptr && subject.traced() != nullptr) advice_.needed = subject;
      advice_.complete = advice_.roomy->fits() == true && subject.run != nullptr;
    }
    if (advice_.as_is.run != nullptr) {
      const std::uint64_t total = number(member(advice_.as_is.result(), "total_bytes"));
      advice_.usable_bytes = total - std::min(total, advice_.as_is.outside_bytes());
      advice_.causes = causes_of(advice_.needed, advice_.as_is);
    }
    if (first.fits().has_value() && advice_.as_is.run != nullptr) {
      settings_.emplace(options_.command, advice_.needed.facts());
      advice_.remedies = remedies_of(advice_.needed, advice_.as_is, *settings_);
      try_remedies();
    }
    return finish();
  }

 private:
  [[nodiscard]] static bool stopped(const FitsRun& run) {
    return run.end.by == WatchedEnd::By::user;
  }

  Advice finish() {
    advice_.answers = answers_of(advice_);
    return std::move(advice_);
  }

  // Where sizes followed from numbers that nobody knows: what fits at their most is looked at so,
  // and where that takes as much they are taken as they come.
  void try_at_most() {
    SimulatedGpus gpus = options_.gpus;
    gpus.unknown = "most";
    FitsRun& first = advice_.runs.front();
    FitsRun most = run_once(as_it_is(), gpus, "sizes at their most", true);
    if (most.fits() == true && !takes_less_than(first, most)) {
      first = std::move(most);
      options_.gpus.unknown = "most";
      return;
    }
    judge_by_most(advice_.runs, first, most);
    if (first.fits() == true) options_.gpus.estimates = true;
  }

  // What fits is tried with other numbers where the host read some that nobody knows; once, and
  // what that shows holds for all that is run.
  void judge_by_other_numbers(FitsRun& run, const Attempt& attempt) {
    std::vector<FitsRun> runs;
    runs.push_back(std::move(run));
    if (wants_second_guess(runs, options_.gpus) != nullptr) {
      if (!with_other_numbers_) {
        SimulatedGpus gpus = options_.gpus;
        gpus.unknown = "noise";
        gpus.choices = choices_of(runs.front());
        with_zeros_ = runs.front();
        with_other_numbers_ = run_once(attempt, gpus, "other numbers", false,
                                       second_guess_limit_seconds(*with_zeros_));
      }
      judge_by_second_guess(runs, *with_zeros_, *with_other_numbers_);
    }
    run = std::move(runs.front());
  }

  // What fits where numbers were drawn is run once more; once, and what that shows holds for all
  // that is run.
  void judge_by_another_draw(FitsRun& run, const Attempt& attempt, const std::string& what) {
    const std::string drew = drew_from(run);
    if (options_.gpus.estimates || with_other_numbers_ || stopped(run) || drew.empty()) return;
    if (!draws_alike_) {
      judge_by_another_run(run, run_once(attempt, options_.gpus, what + ", another run", false,
                                         second_guess_limit_seconds(run)));
      draws_alike_ = run.fits() == true;
      if (!*draws_alike_) drawn_apart_ = what;
    } else if (!*draws_alike_) {
      take_for_not_known(run,
                         fmt::format("numbers were drawn ({}), and two runs {} did not ask for "
                                     "the same memory",
                                     drew, drawn_apart_));
    }
  }

  [[nodiscard]] Attempt as_it_is() const {
    Attempt attempt;
    attempt.allocator = options_.allocator;
    attempt.command = options_.command;
    return attempt;
  }

  [[nodiscard]] FitsRun run_once(const Attempt& attempt, const SimulatedGpus& gpus,
                                 const std::string& name, bool blocks,
                                 std::optional<double> limit_seconds = {}) {
    const TemporaryFolder folder;
    TracedRun traced;
    traced.name = "gapless advise: " + name;
    traced.command = command_of(attempt, folder.path());
    traced.gpus = gpus;
    traced.allocator = attempt.allocator;
    traced.blocks = blocks;
    traced.limit_seconds = limit_seconds.value_or(options_.limit_seconds);
    traced.show_output = options_.show_output;
    traced.variables = variables_of(attempt);
    FitsRun run = run_traced(traced);
    steps_before_.judge(run);
    return run;
  }

  // Whether what was to be otherwise was: in every process that a model was seen in.
  [[nodiscard]] static bool was_changed(const FitsRun& run, const Remedy& remedy) {
    bool seen = remedy.hook.empty() && !remedy.option;
    for (const json& told : run.told) {
      const json changed = member(told, "changed");
      const auto is_hook = [&](const json& word) { return word == remedy.hook; };
      if (!remedy.hook.empty() && changed.is_array()) {
        seen = seen || std::any_of(changed.begin(), changed.end(), is_hook);
      }
      if (!remedy.option) continue;
      for (const OptionFacts& option : facts_of(member(told, "program")).options) {
        if (option.names.empty() || option.names.front() != remedy.option->first) continue;
        const std::string now =
            option.value.is_string() ? option.value.get<std::string>() : option.value.dump();
        std::string wanted = remedy.option->second;
        if (wanted == "True") wanted = "true";
        seen = seen || now == wanted;
      }
    }
    return seen;
  }

  [[nodiscard]] static Trial trial_of(const FitsRun& run, bool changed) {
    Trial trial;
    trial.fits = run.fits();
    trial.seconds = run.seconds;
    const json* telling = &run.rows.front();
    for (const json& row : run.rows) {
      trial.allocated_bytes =
          std::max(trial.allocated_bytes, number(member(row, "peak_allocated_bytes")));
      trial.reserved_bytes =
          std::max(trial.reserved_bytes, number(member(row, "peak_reserved_bytes")));
      const json left = member(row, "headroom_bytes");
      if (left.is_number()) {
        trial.headroom_bytes = std::min(trial.headroom_bytes.value_or(number(left)), number(left));
      }
      const auto worse = [](const json& fits) {
        return fits == false ? 2 : fits.is_null() ? 1 : 0;
      };
      if (worse(row["fits"]) > worse((*telling)["fits"])) telling = &row;
    }
    trial.verdict = (*telling)["verdict"];
    if ((*telling)["reason"].is_string()) trial.reason = (*telling)["reason"];
    if (!changed) {
      trial.fits = std::nullopt;
      trial.verdict = "not known";
      trial.reason = "the change was not seen in the run";
      trial.headroom_bytes.reset();
    }
    return trial;
  }

  [[nodiscard]] bool wanted(const Remedy& remedy) const {
    const auto& tries = options_.tries;
    const auto has = [&](const std::string& name) {
      return std::find(tries.begin(), tries.end(), name) != tries.end();
    };
    return has("all") || has(remedy.id);
  }

  void try_remedies() {
    const json& first = advice_.runs.front().rows.front();
    const bool plain_yes =
        first["fits"] == true && !first["verdict"].get<std::string>().starts_with("yes, but");
    const bool only_default = options_.tries == std::vector<std::string>{"allocator"};
    if (advice_.runs.front().fits() == true && plain_yes && only_default) return;
    bool enough = false;
    for (Remedy& remedy : advice_.remedies) {
      if (!remedy.change || !wanted(remedy)) continue;
      if (try_until_enough(remedy)) return;
      enough = enough || remedy.trial->fits == true;
    }
    for (const Remedy& remedy : advice_.remedies) {
      if (!remedy.change || remedy.trial) continue;
      Attempt attempt = as_it_is();
      remedy.change(attempt);
      keep_files(remedy.id, attempt);
    }
    if (!enough && advice_.runs.front().fits() == false) try_together();
  }

  // Tries it, and more of it where it dies for want of memory. Whether the user ended that.
  bool try_until_enough(Remedy& remedy) {
    std::vector<Remedy> more = std::move(remedy.more);
    for (auto next = more.begin();; ++next) {
      Attempt attempt = as_it_is();
      remedy.change(attempt);
      FitsRun run = run_once(attempt, options_.gpus, remedy.what, false);
      judge_by_other_numbers(run, attempt);
      judge_by_another_draw(run, attempt, "with " + remedy.what);
      remedy.trial = trial_of(run, was_changed(run, remedy));
      const bool end = stopped(run);
      if (remedy.id == "allocator") advice_.runs.push_back(std::move(run));
      if (end || remedy.trial->fits != false || next == more.end()) {
        keep_files(remedy.id, attempt);
        return end;
      }
      next->tried_before = std::move(remedy.tried_before);
      next->tried_before.emplace_back(remedy.what, remedy.trial->verdict);
      remedy = std::move(*next);
    }
  }

  // Those that were tried and are not enough by themselves, one more each time.
  void try_together() {
    Attempt attempt = as_it_is();
    std::vector<const Remedy*> taken;
    std::set<std::string> kinds;
    const auto kind_of = [](const std::string& id) {
      if (id.ends_with("bit-weights")) return std::string("weights");
      return id.starts_with("zero-") ? std::string("zero") : id;
    };
    for (const Remedy& remedy : advice_.remedies) {
      if (!remedy.trial || remedy.id == "max-split") continue;
      if (remedy.trial->verdict == "not known" || !kinds.insert(kind_of(remedy.id)).second)
        continue;
      remedy.change(attempt);
      taken.push_back(&remedy);
      if (taken.size() < 2) continue;
      if (remedy.lost == Lost::nothing) continue;  // with all of those
      FitsRun run = run_once(attempt, options_.gpus, "together with " + remedy.what, false);
      judge_by_other_numbers(run, attempt);
      judge_by_another_draw(run, attempt, "together with " + remedy.what);
      const bool changed = std::all_of(taken.begin(), taken.end(),
                                       [&](const Remedy* one) { return was_changed(run, *one); });
      advice_.together_trial = trial_of(run, changed);
      advice_.together.clear();
      for (const Remedy* const one : taken) advice_.together.push_back(one->id);
      if (advice_.together_trial->fits == true || stopped(run)) break;
    }
    if (advice_.together_trial && advice_.together_trial->fits == true)
      keep_files("together", attempt);
  }

  void keep_files(const std::string& remedy, const Attempt& attempt) {
    for (const auto& [path, text] : attempt.files) {
      advice_.files.push_back({remedy, path, text, changed_lines(read_file(path), text), ""});
    }
  }

  AdviseOptions options_;
  StepsBefore steps_before_;
  std::optional<Settings> settings_;
  std::optional<FitsRun> with_zeros_;  // the first that was tried with other numbers
  std::optional<FitsRun> with_other_numbers_;
  std::optional<bool> draws_alike_;  // whether two runs took the same
  std::string drawn_apart_;          // those that did not
  Advice advice_;
};

}  // namespace

Advice advise(const AdviseOptions& options) { return Adviser(options).run(); }

}  // namespace gapless::tools
