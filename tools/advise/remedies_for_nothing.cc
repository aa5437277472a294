#include <algorithm>

#include "tools/advise/remedy_maker.h"
#include "tools/advise/what_if.h"

namespace gapless::tools {

using simgpu::HeldBlock;
using simgpu::Holder;

void RemedyMaker::allocators() {
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

void RemedyMaker::loss() {
  std::uint64_t largest = 0;
  for (const HeldBlock& block : blocks_) {
    if (block.holder == Holder::loss) largest = std::max(largest, block.bytes);
  }
  // A head is a matrix with as many rows as logits are wide.
  const bool has_head =
      std::any_of(facts_.largest.begin(), facts_.largest.end(), [&](const auto& one) {
        return one.shape.size() == 2 &&
               std::any_of(facts_.losses.begin(), facts_.losses.end(), [&](const LossFacts& loss) {
                 return loss.shape.size() >= 2 && loss.shape.back() == one.shape[0];
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

void RemedyMaker::fused() {
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

void RemedyMaker::data_parallel() {
  const WrapperFacts* const wrapper = facts_.wrapped_by("DataParallel");
  if (wrapper == nullptr || wrapper->gpus.size() < 2) return;
  Remedy& remedy = add("ddp", "DistributedDataParallel in the place of DataParallel", Lost::nothing,
                       "", "torchrun, a process for each GPU, with its share of the batch");
  remedy.why_not = "the program's code has to be changed for it";
}

}  // namespace gapless::tools
