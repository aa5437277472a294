#include "tools/advise/remedies.h"

#include <algorithm>

#include "tools/advise/remedy_maker.h"
#include "tools/advise/what_if.h"
#include "tools/json_values.h"

namespace gapless::tools {

using simgpu::HeldBlock;
using simgpu::Holder;

namespace {

// What grows with the batch and the length.
bool is_of_batch(const HeldBlock& block) {
  return block.holder == Holder::activations || block.holder == Holder::loss ||
         block.holder == Holder::inputs || block.holder == Holder::backward;
}

}  // namespace

RemedyMaker::RemedyMaker(const Subject& needed, const Subject& as_is, const Settings& settings)
    : blocks_(needed.traced()->blocks),
      facts_(needed.facts()),
      settings_(settings),
      as_is_(as_is),
      peak_(needed.traced()->course.peak.allocated_bytes) {
  const std::uint64_t total = number(member(as_is.result(), "total_bytes"));
  usable_ = total - std::min(total, as_is.outside_bytes());
}

std::vector<Remedy> RemedyMaker::all() {
  allocators();
  max_split();
  loss();
  fused();
  data_parallel();
  batch();
  checkpointing();
  zero();
  paged_optimizer();
  bucket();
  precision();
  frozen_in_half();
  eight_bit_optimizer();
  length();
  lora();
  weights_in_few_bits();
  std::stable_sort(made_.begin(), made_.end(),
                   [](const Remedy& a, const Remedy& b) { return a.lost < b.lost; });
  return std::move(made_);
}

// Whether what was estimated is worth a line: a hundredth of the peak.
bool RemedyMaker::is_worth(std::uint64_t estimate) const { return estimate + peak_ / 100 <= peak_; }

std::uint64_t RemedyMaker::peak_with_batch(double share) const {
  return peak_if(blocks_,
                 [share](const HeldBlock& block) { return is_of_batch(block) ? share : 1.0; });
}

Remedy& RemedyMaker::add(const char* id, const std::string& what, Lost lost,
                         const std::string& loses, const std::string& how) {
  Remedy remedy;
  remedy.id = id;
  remedy.what = what;
  remedy.lost = lost;
  remedy.loses = loses;
  remedy.how = how;
  made_.push_back(std::move(remedy));
  return made_.back();
}

// Sets an option, or a value in a file, in the run to be tried.
void RemedyMaker::by_optimizer(Remedy& remedy, const std::vector<std::string>& parts,
                               const std::string& trainers) const {
  const auto place = settings_.find(Role::optimizer);
  const auto value = place ? settings_.optimizer_with(*place, parts, trainers) : std::nullopt;
  if (value) {
    by_setting(remedy, Role::optimizer, *value);
  } else {
    remedy.why_not = "no option and no file of the command is known to set it";
  }
}

void RemedyMaker::by_setting(Remedy& remedy, Role role, const std::string& value) const {
  const auto place = settings_.find(role);
  if (!place) {
    remedy.why_not = "no option and no file of the command is known to set it";
    return;
  }
  const auto word = spelled(*place, role, value);
  if (!word) {
    remedy.why_not = place->name + " does not take it, as far as is known, or has it";
    return;
  }
  remedy.how = settings_.text(*place, *word);
  remedy.change = [this_place = *place, word = *word](Attempt& attempt) {
    set(attempt, this_place, word);
  };
  if (place->kind == SettingPlace::Kind::option) {
    remedy.option = {place->name, place->takes_value ? *word : "true"};
  }
}

const char* name_of(Lost lost) {
  switch (lost) {
    case Lost::nothing:
      return "nothing";
    case Lost::time:
      return "time";
    case Lost::quality:
      break;
  }
  return "quality";
}

std::vector<std::string> remedy_names() {
  return {"allocator",   "max-split",       "loss",   "fused",        "ddp",
          "batch",       "checkpointing",   "zero-2", "zero-3",       "offload",
          "zero-bucket", "paged-optimizer", "bf16",   "half-frozen",  "8bit-optimizer",
          "length",      "lora-rank",       "lora",   "8bit-weights", "4bit-weights"};
}

std::vector<Remedy> remedies_of(const Subject& needed, const Subject& as_is,
                                const Settings& settings) {
  if (needed.run == nullptr || needed.traced() == nullptr || as_is.run == nullptr) return {};
  return RemedyMaker(needed, as_is, settings).all();
}

}  // namespace gapless::tools
