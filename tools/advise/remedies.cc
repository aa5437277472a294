#include "tools/advise/remedies.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/advise/settings.h"
#include "tools/advise/what_if.h"
#include "tools/json_values.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using simgpu::HeldBlock;
using simgpu::Holder;

// What grows with the batch and the length.
bool is_of_batch(const HeldBlock& block) {
  return block.holder == Holder::activations || block.holder == Holder::loss ||
         block.holder == Holder::inputs || block.holder == Holder::backward;
}

bool is_any(const HeldBlock& block, std::initializer_list<Holder> holders) {
  return std::find(holders.begin(), holders.end(), block.holder) != holders.end();
}

bool is_half(const std::string& dtype) { return dtype == "bfloat16" || dtype == "float16"; }

class Maker {
 public:
  Maker(const Subject& needed, const Subject& as_is, const Settings& settings)
      : blocks_(needed.traced()->blocks),
        facts_(needed.facts()),
        settings_(settings),
        as_is_(as_is),
        peak_(needed.traced()->course.peak.allocated_bytes) {
    const std::uint64_t total = number(member(as_is.result(), "total_bytes"));
    usable_ = total - std::min(total, as_is.outside_bytes());
  }

  std::vector<Remedy> all() {
    allocators();
    max_split();
    loss();
    fused();
    data_parallel();
    batch();
    checkpointing();
    zero();
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

 private:
  // Whether what was estimated is worth a line: a hundredth of the peak.
  [[nodiscard]] bool is_worth(std::uint64_t estimate) const {
    return estimate + peak_ / 100 <= peak_;
  }
  [[nodiscard]] bool trains() const { return !facts_.optimizers.empty(); }
  [[nodiscard]] std::uint64_t bytes_at_any_time(std::initializer_list<Holder> holders) const {
    return peak_if(blocks_,
                   [&](const HeldBlock& block) { return is_any(block, holders) ? 1.0 : 0.0; });
  }

  Remedy& add(const char* id, const std::string& what, Lost lost, const std::string& loses,
              const std::string& how) {
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
  void by_setting(Remedy& remedy, Role role, const std::string& value) const {
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

  // --- nothing is lost ---------------------------------------------------------------------------

  void allocators() {
    for (const char* const name : {"gapless", "expandable"}) {
      if (as_is_.run->allocator == name) continue;
      const bool ours = std::string(name) == "gapless";
      Remedy& remedy =
          add("allocator", ours ? "the allocator gapless" : "the allocator's expandable segments",
              Lost::nothing, ours ? "a slower start" : "",
              ours ? "gapless run -- COMMAND" : "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
      remedy.change = [name](Attempt& attempt) { attempt.allocator = name; };
    }
  }

  void max_split() {
    if (as_is_.run->allocator != "native") return;
    Remedy& remedy =
        add("max-split", "large blocks are not split (max_split_size_mb)", Lost::time,
            "a little: more calls of the driver", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128");
    remedy.change = [](Attempt& attempt) {
      if (attempt.allocator != "native") return;
      attempt.variables.emplace_back("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128");
    };
  }

  void loss() {
    std::uint64_t largest = 0;
    for (const HeldBlock& block : blocks_) {
      if (block.holder == Holder::loss) largest = std::max(largest, block.bytes);
    }
    // A head is a matrix with as many rows as logits are wide.
    const bool has_head =
        std::any_of(facts_.largest.begin(), facts_.largest.end(), [&](const auto& one) {
          return one.shape.size() == 2 && std::any_of(facts_.losses.begin(), facts_.losses.end(),
                                                      [&](const LossFacts& loss) {
                                                        return loss.shape.size() >= 2 &&
                                                               loss.shape.back() == one.shape[0];
                                                      });
        });
    if (largest == 0 || !has_head) return;
    const std::uint64_t left = peak_if(blocks_, [&](const HeldBlock& block) {
      return block.holder == Holder::loss && block.bytes * 4 >= largest ? 0.0 : 1.0;
    });
    if (!is_worth(left)) return;
    Remedy& remedy =
        add("loss", "a loss that keeps no logits (computed in pieces, from the head's input)",
            Lost::nothing, "",
            "gapless.patch_loss(model), or gapless.nn.functional.linear_cross_entropy; others: "
            "torch's (2.13 or newer), Liger's");
    remedy.estimate = {left, true, "the peak without logits, copies of them and their gradients"};
    remedy.hook = "loss";
    remedy.change = [](Attempt& attempt) { attempt.hooks.emplace_back("loss"); };
  }

  void fused() {
    const bool can =
        std::any_of(facts_.optimizers.begin(), facts_.optimizers.end(), [](const auto& one) {
          return one.library == "torch" && !one.fused && one.on_gpu &&
                 (one.name == "Adam" || one.name == "AdamW" || one.name == "SGD" ||
                  one.name == "Adagrad");
        });
    if (!can) return;
    const std::uint64_t left = peak_if(blocks_, [](const HeldBlock& block) {
      return block.holder == Holder::optimizer_step ? 0.0 : 1.0;
    });
    if (!is_worth(left)) return;
    Remedy& remedy = add("fused", "an optimizer's step in one kernel", Lost::nothing, "",
                         "torch.optim.AdamW(..., fused=True)");
    remedy.estimate = {left, false, "the peak without what is made during the optimizer's step"};
    remedy.hook = "fused";
    remedy.change = [](Attempt& attempt) { attempt.hooks.emplace_back("fused"); };
  }

  void data_parallel() {
    const WrapperFacts* const wrapper = facts_.wrapped_by("DataParallel");
    if (wrapper == nullptr || wrapper->gpus.size() < 2) return;
    Remedy& remedy =
        add("ddp", "DistributedDataParallel in the place of DataParallel", Lost::nothing, "",
            "torchrun, a process for each GPU, with its share of the batch");
    remedy.why_not = "the program's code has to be changed for it";
  }

  // --- time --------------------------------------------------------------------------------------

  [[nodiscard]] std::uint64_t peak_with_batch(double share) const {
    return peak_if(blocks_,
                   [share](const HeldBlock& block) { return is_of_batch(block) ? share : 1.0; });
  }

  void batch() {
    const auto place = settings_.find(Role::batch);
    const std::uint64_t known = place && place->value.is_number() ? number(place->value)
                                : facts_.embedded.size() == 2     ? facts_.embedded[0]
                                                                  : 0;
    if (known == 1 || !trains()) return;
    constexpr std::uint64_t kMostParts = 64;
    std::uint64_t parts = 2;  // of each batch
    while (parts < kMostParts && known % (parts * 2) == 0 &&
           peak_with_batch(1.0 / double(parts)) > usable_) {
      parts *= 2;
    }
    if (known % parts != 0) parts = known;
    if (!is_worth(peak_with_batch(1.0 / double(parts)))) return;
    Remedy remedy = batch_in(parts, known, place);
    while (remedy.change && parts < known) {
      parts = known % (parts * 2) == 0 ? parts * 2 : known;
      remedy.more.push_back(batch_in(parts, known, place));
    }
    made_.push_back(std::move(remedy));
  }

  // `known`: how large batches are; 0: not known.
  [[nodiscard]] Remedy batch_in(std::uint64_t parts, std::uint64_t known,
                                const std::optional<SettingPlace>& place) const {
    const std::string smaller =
        known == 0 ? fmt::format("1/{} of it", parts) : with_commas(known / parts);
    Remedy remedy;
    remedy.id = "batch";
    remedy.what =
        fmt::format("batches of {}{}, {} times as many accumulated", smaller,
                    known == 0 ? "" : fmt::format(" in place of {}", with_commas(known)), parts);
    remedy.lost = Lost::time;
    remedy.loses = "smaller kernels";
    remedy.how = "the same effective batch: more steps of gradient accumulation";
    remedy.estimate = {peak_with_batch(1.0 / double(parts)), false,
                       "activations, logits, inputs and what the backward pass makes are taken for "
                       "proportional to the batch"};
    if (!place || !place->value.is_number()) {
      remedy.why_not = "no option and no file of the command is known to set it";
      return remedy;
    }
    by_setting(remedy, Role::batch, std::to_string(known / parts));
    const auto accumulation = settings_.find(Role::accumulation);
    if (!accumulation || !accumulation->value.is_number()) {
      remedy.how +=
          "; and accumulate gradients of " + std::to_string(parts) + " times as many batches";
      return remedy;
    }
    const std::string value = std::to_string(number(accumulation->value) * parts);
    remedy.how += "; " + settings_.text(*accumulation, value);
    remedy.change = [first = remedy.change, place_of = *accumulation, value](Attempt& attempt) {
      first(attempt);
      set(attempt, place_of, value);
    };
    return remedy;
  }

  void checkpointing() {
    if (facts_.checkpointed || !trains()) return;
    const std::uint64_t left = peak_if(blocks_, [](const HeldBlock& block) {
      return block.holder == Holder::activations ? 0.0 : 1.0;
    });
    if (!is_worth(left)) return;
    Remedy& remedy =
        add("checkpointing", "gradient checkpointing", Lost::time, "one more forward pass",
            "model.gradient_checkpointing_enable(), torch.utils.checkpoint");
    remedy.estimate = {left, true,
                       "the peak without any activations; a layer's inputs and one layer's "
                       "activations are left"};
    const auto place = settings_.find(Role::checkpointing);
    if (place) {
      by_setting(remedy, Role::checkpointing, "true");
    } else if (!facts_.can_checkpoint.empty()) {
      remedy.how = fmt::format(
          "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs="
          "{{\"use_reentrant\": False}}) ({} has it)",
          facts_.can_checkpoint.back());
      remedy.hook = "checkpointing";
      remedy.change = [](Attempt& attempt) { attempt.hooks.emplace_back("checkpointing"); };
    } else {
      remedy.why_not =
          "the program's code has to be changed for it: no model has "
          "gradient_checkpointing_enable()";
    }
  }

  void zero() {
    const WrapperFacts* const deepspeed = facts_.wrapped_by("DeepSpeed");
    if (!trains() || facts_.wrapped_by("FSDP") != nullptr) return;
    const int stage = deepspeed == nullptr ? 0 : deepspeed->stage;
    const double share = 1.0 / facts_.world;
    const auto with = [&](double parameters, double gradients, double states) {
      return peak_if(blocks_, [&](const HeldBlock& block) {
        switch (block.holder) {
          case Holder::parameters:
            return parameters;
          case Holder::gradients:
            return gradients;
          case Holder::optimizer_states:
          case Holder::optimizer_step:
            return states;
          default:
            return 1.0;
        }
      });
    };
    const std::string ranks = fmt::format("of {} ranks", facts_.world);
    const auto propose = [&](const char* id, const std::string& what, std::uint64_t left,
                             const std::string& how, Role role, const char* value) {
      if (!is_worth(left)) return;
      Remedy& remedy = add(id, what, Lost::time, "more is sent between GPUs", how);
      remedy.estimate = {left, true,
                         "what is sharded or on the host is left out of the trace; "
                         "DeepSpeed's own buffers are not counted"};
      by_setting(remedy, role, value);
      if (!remedy.why_not.empty()) remedy.how = how;
    };
    if (facts_.world > 1 && stage < 2) {
      propose("zero-2", "ZeRO-2: states and gradients sharded, " + ranks, with(1, share, share),
              "DeepSpeed, zero_optimization.stage: 2; or FSDP", Role::zero_stage, "2");
    }
    if (facts_.world > 1 && stage < 3) {
      propose("zero-3", "ZeRO-3: parameters sharded as well, " + ranks, with(share, share, share),
              "DeepSpeed, zero_optimization.stage: 3; or FSDP2", Role::zero_stage, "3");
    }
    const bool offloads = deepspeed != nullptr && deepspeed->offload_optimizer == "cpu";
    if (!offloads) {
      propose("offload", "states of the optimizer and gradients on the host (offload)",
              with(1, 0, 0), "DeepSpeed, zero_optimization.offload_optimizer.device: cpu",
              Role::offload, "cpu");
      if (made_.back().id == "offload") made_.back().loses = "much: they cross the bus each step";
    }
  }

  // What DeepSpeed sets aside for gradients on their way does not shrink with the model.
  void bucket() {
    constexpr double kDefault = 5e8;
    constexpr double kSmaller = 5e7;
    const WrapperFacts* const deepspeed = facts_.wrapped_by("DeepSpeed");
    if (!trains() || deepspeed == nullptr || deepspeed->stage == 0) return;
    double now = kDefault;
    if (const auto place = settings_.find(Role::bucket); place && !place->value.is_null()) {
      if (!place->value.is_number()) return;  // "auto": Trainer goes by the model
      now = place->value.get<double>();
    }
    if (now <= kSmaller) return;
    const char* const how = "DeepSpeed, zero_optimization.reduce_bucket_size: 50000000";
    Remedy& remedy = add("zero-bucket", "DeepSpeed's buckets of gradients of 50 M numbers",
                         Lost::time, "a little: more and smaller messages", how);
    by_setting(remedy, Role::bucket, "50000000");
    if (!remedy.why_not.empty()) remedy.how = how;
  }

  // --- quality -----------------------------------------------------------------------------------

  void precision() {
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
    Remedy& remedy = add("bf16", "bfloat16 by autocast", Lost::quality,
                         "little: 8 bits of mantissa", "torch.autocast(\"cuda\", torch.bfloat16)");
    remedy.estimate = {left, true,
                       "activations and what the backward pass makes at half their size; "
                       "autocast's copies of parameters are not counted"};
    by_setting(remedy, Role::bf16, "true");
    if (!remedy.why_not.empty()) remedy.how = "torch.autocast(\"cuda\", torch.bfloat16)";
  }

  void frozen_in_half() {
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
    Remedy& remedy =
        add("half-frozen",
            was_made ? "the frozen float32 parameters in bfloat16, as the others are"
                     : "the frozen float32 parameters in bfloat16",
            Lost::quality, "little: they are not trained",
            was_made
                ? "cast them back (parameter.data = parameter.data.to(torch.bfloat16)), or do not "
                  "call what turned them to float32"
                : "load the model so (from_pretrained(..., dtype=torch.bfloat16)), before adapters "
                  "are added");
    remedy.estimate = {left, false, "those parameters at half their size"};
    remedy.why_not = "the program's code has to be changed for it";
  }

  void eight_bit_optimizer() {
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
    const auto place = settings_.find(Role::optimizer);
    const auto value = place ? settings_.eight_bit(*place) : std::nullopt;
    if (value) {
      by_setting(remedy, Role::optimizer, *value);
    } else {
      remedy.why_not = "no option and no file of the command is known to set it";
    }
  }

  void length() {
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

  [[nodiscard]] Remedy length_in(std::uint64_t parts, std::uint64_t known,
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

  void lora() {
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
      Remedy& remedy = add(
          "lora-rank",
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

  void weights_in_few_bits() {
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
      if (group.device != "cuda" || group.module != "Linear" || (group.trained && trains()))
        continue;
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

  const std::vector<HeldBlock>& blocks_;
  ProgramFacts facts_;
  const Settings& settings_;
  Subject as_is_;
  std::uint64_t peak_;
  std::uint64_t usable_ = 0;
  std::vector<Remedy> made_;
};

}  // namespace

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
  return {"allocator",   "max-split",     "loss",         "fused",          "ddp",
          "batch",       "checkpointing", "zero-2",       "zero-3",         "offload",
          "zero-bucket", "bf16",          "half-frozen",  "8bit-optimizer", "length",
          "lora-rank",   "lora",          "8bit-weights", "4bit-weights"};
}

std::vector<Remedy> remedies_of(const Subject& needed, const Subject& as_is,
                                const Settings& settings) {
  if (needed.run == nullptr || needed.traced() == nullptr || as_is.run == nullptr) return {};
  return Maker(needed, as_is, settings).all();
}

}  // namespace gapless::tools
