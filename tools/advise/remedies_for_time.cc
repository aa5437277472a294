#include <algorithm>

#include <fmt/format.h>

#include "tools/advise/remedy_maker.h"
#include "tools/advise/what_if.h"
#include "tools/json_values.h"
#include "tools/table.h"

namespace gapless::tools {

using simgpu::HeldBlock;
using simgpu::Holder;

void RemedyMaker::max_split() {
  if (as_is_.run->allocator != "native") return;
  Remedy& remedy =
      add("max-split", "large blocks are not split (max_split_size_mb)", Lost::time,
          "a little: more calls of the driver", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128");
  remedy.change = [](Attempt& attempt) {
    if (attempt.allocator != "native") return;
    attempt.variables.emplace_back("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128");
  };
}

void RemedyMaker::batch() {
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
Remedy RemedyMaker::batch_in(std::uint64_t parts, std::uint64_t known,
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

void RemedyMaker::checkpointing() {
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

void RemedyMaker::zero() {
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
    propose("offload", "states of the optimizer and gradients on the host (offload)", with(1, 0, 0),
            "DeepSpeed, zero_optimization.offload_optimizer.device: cpu", Role::offload, "cpu");
    if (made_.back().id == "offload") made_.back().loses = "much: they cross the bus each step";
  }
}

// Managed memory goes to the host where a request needs the room.
void RemedyMaker::paged_optimizer() {
  const bool can =
      std::any_of(facts_.optimizers.begin(), facts_.optimizers.end(), [](const auto& one) {
        return one.on_gpu && one.name.find("Adam") != std::string::npos &&
               one.name.find("Paged") == std::string::npos;
      });
  if (!can || facts_.wrapped_by("DeepSpeed") != nullptr || facts_.wrapped_by("FSDP") != nullptr) {
    return;
  }
  const std::uint64_t left = peak_if(blocks_, [](const HeldBlock& block) {
    return block.holder == Holder::optimizer_states ? 0.0 : 1.0;
  });
  if (!is_worth(left)) return;
  Remedy& remedy = add("paged-optimizer", "states of the optimizer in managed memory (paged)",
                       Lost::time, "what the GPU has no room for crosses the bus in each step",
                       "bitsandbytes.optim.PagedAdamW32bit in the place of AdamW");
  remedy.estimate = {left, false, "the peak without the optimizer's states"};
  by_optimizer(remedy, {"paged_adam", "32bit"}, "paged_adamw_32bit");
}

// What DeepSpeed sets aside for gradients on their way does not shrink with the model.
void RemedyMaker::bucket() {
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

}  // namespace gapless::tools
