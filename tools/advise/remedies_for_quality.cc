#include <algorithm>

#include <fmt/format.h>

#include "tools/advise/remedy_maker.h"
#include "tools/advise/what_if.h"
#include "tools/json_values.h"
#include "tools/table.h"

namespace gapless::tools {

using simgpu::HeldBlock;
using simgpu::Holder;

namespace {

bool is_any(const HeldBlock& block, std::initializer_list<Holder> holders) {
  return std::find(holders.begin(), holders.end(), block.holder) != holders.end();
}

bool is_half(const std::string& dtype) { return dtype == "bfloat16" || dtype == "float16"; }

}  // namespace

void RemedyMaker::precision() {
  std::uint64_t wide = 0;
  std::uint64_t all = 0;
  for (const ParameterFacts& group : facts_.groups) {
    if (group.device != "cuda") continue;
    all += group.numbers;
    if (group.dtype == "float32") wide += group.numbers;
  }
  if (!facts_.autocast.empty() || all == 0 || wide * 2 < all) return;
  const std::uint64_t left = peak_if(blocks_, [](const HeldBlock& block) {
    return is_any(block, {Holder::activations, Holder::backward}) ? 0.5 : 1.0;
  });
  if (!is_worth(left)) return;
  Remedy& remedy = add("bf16", "bfloat16 by autocast", Lost::quality, "little: 8 bits of mantissa",
                       "torch.autocast(\"cuda\", torch.bfloat16)");
  remedy.estimate = {left, true,
                     "activations and what the backward pass makes at half their size; "
                     "autocast's copies of parameters are not counted"};
  by_setting(remedy, Role::bf16, "true");
  if (!remedy.why_not.empty()) remedy.how = "torch.autocast(\"cuda\", torch.bfloat16)";
}

void RemedyMaker::frozen_in_half() {
  if (!trains()) return;
  std::uint64_t all = 0;
  std::uint64_t frozen = 0;  // in float32
  std::uint64_t low = 0;
  for (const ParameterFacts& group : facts_.groups) {
    if (group.device != "cuda") continue;
    all += group.bytes;
    if (group.dtype != "float32") low += group.bytes;
    if (group.dtype == "float32" && !group.trained) frozen += group.bytes;
  }
  if (frozen == 0) return;
  const double kept = 1 - 0.5 * static_cast<double>(frozen) / static_cast<double>(all);
  const std::uint64_t left = peak_if(blocks_, [&](const HeldBlock& block) {
    return block.holder == Holder::parameters ? kept : 1.0;
  });
  if (!is_worth(left)) return;
  // Where most are in half precision already, something made these wide.
  const bool was_made = low > frozen;
  Remedy& remedy = add(
      "half-frozen",
      was_made ? "the frozen float32 parameters in bfloat16, as the others are"
               : "the frozen float32 parameters in bfloat16",
      Lost::quality, "little: they are not trained",
      was_made ? "cast them back (parameter.data = parameter.data.to(torch.bfloat16)), or do not "
                 "call what turned them to float32"
               : "load the model so (from_pretrained(..., dtype=torch.bfloat16)), before adapters "
                 "are added");
  remedy.estimate = {left, false, "those parameters at half their size"};
  remedy.why_not = "the program's code has to be changed for it";
}

void RemedyMaker::eight_bit_optimizer() {
  const bool can =
      std::any_of(facts_.optimizers.begin(), facts_.optimizers.end(), [](const auto& one) {
        const auto found = one.state_bytes.find("cuda:float32");
        return found != one.state_bytes.end() && found->second != 0;
      });
  if (!can) return;
  const std::uint64_t left = peak_if(blocks_, [](const HeldBlock& block) {
    return block.holder == Holder::optimizer_states ? 0.25 : 1.0;
  });
  if (!is_worth(left)) return;
  Remedy& remedy = add("8bit-optimizer", "an optimizer with states of 8 bits", Lost::quality,
                       "little", "bitsandbytes.optim.AdamW8bit in the place of AdamW");
  remedy.estimate = {left, false, "float32 states at a quarter of their size"};
  by_optimizer(remedy, {"8bit", "adam"}, "adamw_bnb_8bit");
}

void RemedyMaker::length() {
  const auto place = settings_.find(Role::length);
  const std::uint64_t known = place && place->value.is_number() ? number(place->value)
                              : facts_.embedded.size() == 2     ? facts_.embedded[1]
                                                                : 0;
  if (known < 2) return;
  std::uint64_t parts = 2;
  constexpr std::uint64_t kLeastLength = 64;
  while (known / (parts * 2) >= kLeastLength && peak_with_batch(1.0 / double(parts)) > usable_) {
    parts *= 2;
  }
  if (!is_worth(peak_with_batch(1.0 / double(parts)))) return;
  Remedy remedy = length_in(parts, known, place);
  while (remedy.change && known / (parts * 2) >= kLeastLength) {
    parts *= 2;
    remedy.more.push_back(length_in(parts, known, place));
  }
  made_.push_back(std::move(remedy));
}

Remedy RemedyMaker::length_in(std::uint64_t parts, std::uint64_t known,
                              const std::optional<SettingPlace>& place) const {
  Remedy remedy;
  remedy.id = "length";
  remedy.what = fmt::format("at most {} tokens in place of {}", with_commas(known / parts),
                            with_commas(known));
  remedy.lost = Lost::quality;
  remedy.loses = "what is longer is cut";
  remedy.how = "cut or pack inputs to that length";
  remedy.estimate = {
      peak_with_batch(1.0 / double(parts)), false,
      "activations, logits, inputs and what the backward pass makes are taken for "
      "proportional to the length (attention without a fused kernel takes its square)"};
  if (!place || !place->value.is_number()) {
    remedy.why_not = "no option and no file of the command is known to set it";
    return remedy;
  }
  by_setting(remedy, Role::length, std::to_string(known / parts));
  return remedy;
}

void RemedyMaker::lora() {
  if (!trains()) return;
  std::uint64_t all = 0;
  std::uint64_t trained = 0;
  for (const ParameterFacts& group : facts_.groups) {
    if (group.device != "cuda") continue;
    all += group.numbers;
    if (group.trained) trained += group.numbers;
  }
  if (facts_.lora_rank && *facts_.lora_rank >= 2) {
    const std::uint64_t left = peak_if(blocks_, [](const HeldBlock& block) {
      return is_any(block, {Holder::gradients, Holder::optimizer_states, Holder::optimizer_step})
                 ? 0.5
                 : 1.0;
    });
    if (!is_worth(left)) return;
    Remedy& remedy =
        add("lora-rank",
            fmt::format("LoRA of rank {} in place of {}", *facts_.lora_rank / 2, *facts_.lora_rank),
            Lost::quality, "adapters of half the size", "LoraConfig(r=...)");
    remedy.estimate = {left, false, "gradients and states of the optimizer at half their size"};
    by_setting(remedy, Role::lora_rank, std::to_string(*facts_.lora_rank / 2));
    if (!remedy.why_not.empty()) remedy.how = "LoraConfig(r=...)";
    return;
  }
  if (all == 0 || trained * 2 < all || facts_.lora_rank) return;
  const std::uint64_t left = peak_if(blocks_, [](const HeldBlock& block) {
    return is_any(block, {Holder::gradients, Holder::optimizer_states, Holder::optimizer_step})
               ? 0.0
               : 1.0;
  });
  if (!is_worth(left)) return;
  Remedy& remedy = add("lora", "LoRA: only small adapters are trained", Lost::quality,
                       "the rest stays as it is", "peft.get_peft_model(model, LoraConfig(...))");
  remedy.estimate = {left, true,
                     "the peak without gradients and states of the optimizer; the adapters' "
                     "own are not counted"};
  remedy.why_not = "the program's code has to be changed for it";
}

void RemedyMaker::weights_in_few_bits() {
  // Bytes for each number: 8 bits and a scale a row; 4 bits with a scale of 8 bits for each 64
  // (Dettmers et al., QLoRA, 2023: 0.127 bits a parameter with double quantisation).
  constexpr double kEight = 1.0;
  constexpr double kFour = (4 + 0.127) / 8;
  const auto can = [&](const ParameterFacts& one) {
    return one.module == "Linear" && one.shape.size() == 2 && (!one.trained || !trains()) &&
           (is_half(one.dtype) || one.dtype == "float32") &&
           one.name.find("lora_") == std::string::npos &&
           one.name.find("lm_head") == std::string::npos;
  };
  std::uint64_t numbers = 0;
  double bytes = 0;
  for (const ParameterFacts& group : facts_.groups) {
    if (group.device != "cuda" || group.module != "Linear" || (group.trained && trains())) continue;
    if (!is_half(group.dtype) && group.dtype != "float32") continue;
    numbers += group.numbers;
    bytes += static_cast<double>(group.bytes);
  }
  const bool any = std::any_of(facts_.largest.begin(), facts_.largest.end(), can);
  if (!any || numbers == 0) return;
  const auto propose = [&](const char* id, const char* what, double each, Role role,
                           const char* how) {
    const double saved = bytes - static_cast<double>(numbers) * each;
    if (saved <= 0) return;
    const auto less = static_cast<std::uint64_t>(saved);
    const std::uint64_t left = peak_ - std::min(peak_, less);
    if (!is_worth(left)) return;
    Remedy& remedy = add(id, what, Lost::quality, "weights are rounded", how);
    remedy.estimate = {
        left, true,
        fmt::format("{:.1f} M numbers of linear layers that nothing trains, at {:.2f} bytes each",
                    double(numbers) / 1e6, each)};
    by_setting(remedy, role, "true");
    if (!remedy.why_not.empty()) remedy.how = how;
  };
  propose("8bit-weights", "weights of 8 bits", kEight, Role::eight_bit,
          "BitsAndBytesConfig(load_in_8bit=True)");
  propose("4bit-weights", "weights of 4 bits", kFour, Role::four_bit,
          "BitsAndBytesConfig(load_in_4bit=True)");
}

}  // namespace gapless::tools
