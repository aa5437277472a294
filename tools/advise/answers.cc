#include "tools/advise/answers.h"

#include <algorithm>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/advise/what_if.h"
#include "tools/json_values.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using simgpu::HeldBlock;
using simgpu::Holder;

bool stays(const HeldBlock& block) {
  return block.holder == Holder::loss || block.holder == Holder::activations ||
         block.holder == Holder::inputs;
}

std::string gpu_text(const Advice& advice) {
  return fmt::format("{} of the GPU's {}", format_bytes(advice.usable_bytes),
                     size_text(member(advice.as_is.result(), "total_bytes")));
}

std::uint64_t peak_of(const Advice& advice) {
  return advice.needed.traced()->course.peak.allocated_bytes;
}

// How it is with other allocators.
void add_allocators(std::vector<std::string>& answers, const Advice& advice) {
  std::vector<std::string> dies = {advice.runs.front().allocator};
  std::vector<std::string> fits;
  for (std::size_t i = 1; i < advice.runs.size(); ++i) {
    const FitsRun& run = advice.runs[i];
    if (run.fits() == true) fits.push_back(run.allocator);
    if (run.fits() == false) dies.push_back(run.allocator);
  }
  if (!fits.empty()) {
    answers.push_back(
        fmt::format("the allocator helps, and nothing is lost: it fails with {} and fits with {}",
                    fmt::join(dies, ", "), fmt::join(fits, ", ")));
    return;
  }
  if (dies.size() != advice.runs.size() || dies.size() < 2) return;
  std::string text =
      fmt::format("changing the allocator does not help: it dies with {}", fmt::join(dies, ", "));
  if (advice.complete && peak_of(advice) > advice.usable_bytes) {
    text +=
        fmt::format("; {} are live at once at its peak, and {} are to be had beside the context",
                    format_bytes(peak_of(advice)), gpu_text(advice));
  }
  answers.push_back(text);
}

void add_zero(std::vector<std::string>& answers, const Advice& advice) {
  const ProgramFacts facts = advice.needed.facts();
  const std::uint64_t least = least_with_zero(advice.needed);
  if (facts.optimizers.empty() || least <= advice.usable_bytes) return;
  const std::uint64_t logits = peak_if(advice.needed.traced()->blocks, [](const HeldBlock& block) {
    return block.holder == Holder::loss ? 1.0 : 0.0;
  });
  answers.push_back(
      fmt::format("no ZeRO stage helps, with or without offload: were there no parameters, "
                  "gradients and states "
                  "at all, {} of activations, logits and inputs would be live at once, none of "
                  "which is sharded "
                  "(logits and the loss up to {}), and {} are to be had",
                  format_bytes(least), format_bytes(logits), gpu_text(advice)));
}

void add_headroom(std::vector<std::string>& answers, const Advice& advice) {
  const json& row = advice.as_is.result();
  const json left = member(row, "headroom_bytes");
  if (!left.is_number()) return;
  answers.push_back(fmt::format("it fits as it is: {} are left on the fullest GPU ({:.1f} %)",
                                size_text(left), row["headroom_percent"].get<double>()));
  if (advice.as_is.traced() == nullptr) return;
  // By how much what grows with the batch could grow.
  const auto peak = [&](double times) {
    return peak_if(advice.as_is.traced()->blocks, [times](const HeldBlock& block) {
      return stays(block) || block.holder == Holder::backward ? times : 1.0;
    });
  };
  const std::uint64_t lost = number(member(row["memory_at_peak"], "fragmentation_bytes"));
  const std::uint64_t room = advice.usable_bytes - std::min(advice.usable_bytes, lost);
  constexpr double kMost = 64;
  double least = 1;
  double most = kMost;
  if (peak(1.0) == 0 || peak(1.05) > room) return;
  for (int i = 0; i < 20 && peak(kMost) > room; ++i) {
    const double middle = (least + most) / 2;
    (peak(middle) <= room ? least : most) = middle;
  }
  if (peak(kMost) <= room) least = kMost;
  if (least < 1.25) return;
  answers.push_back(
      fmt::format("the batch, or the length, could be raised to about {:.1f} times what it is{} "
                  "(an estimate; gapless "
                  "search proves it)",
                  least, least >= kMost ? ", or more" : ""));
}

}  // namespace

std::uint64_t least_with_zero(const Subject& needed) {
  return peak_if(needed.traced()->blocks,
                 [](const HeldBlock& block) { return stays(block) ? 1.0 : 0.0; });
}

std::vector<std::string> answers_of(const Advice& advice) {
  std::vector<std::string> answers;
  const std::optional<bool> fits = advice.runs.front().fits();
  if (advice.as_is.run == nullptr) return answers;
  if (fits == true) {
    add_headroom(answers, advice);
  } else if (fits == false && advice.needed.traced() != nullptr) {
    if (advice.complete) {
      answers.push_back(fmt::format(
          "at its peak the program needs {} allocated, {} {} are to be had: seen "
          "on a GPU with room for it",
          format_bytes(peak_of(advice)), peak_of(advice) > advice.usable_bytes ? "and only" : "and",
          gpu_text(advice)));
    } else {
      answers.emplace_back(
          "what it needs in all is not known: with room it did not come to its end either; causes "
          "and "
          "estimates are of what was seen");
    }
    add_allocators(answers, advice);
    if (advice.complete) add_zero(answers, advice);
  } else if (!fits) {
    answers.emplace_back(
        "whether it fits is not known, so nothing is advised before that is mended");
  }
  if (fits != false) return answers;
  std::vector<std::string> help;
  bool tried = false;
  for (const Remedy& remedy : advice.remedies) {
    if (remedy.id == "allocator" || !remedy.trial) continue;
    tried = true;
    if (remedy.trial->fits == true)
      help.push_back(fmt::format("{} (lost: {})", remedy.what, name_of(remedy.lost)));
  }
  if (!help.empty()) {
    answers.push_back(fmt::format("enough by itself, tried: {}", fmt::join(help, "; ")));
  } else if (tried) {
    answers.emplace_back("of what was tried, besides the allocator, nothing is enough by itself");
  }
  if (advice.together_trial) {
    const std::string names = fmt::format("{}", fmt::join(advice.together, " + "));
    answers.push_back(advice.together_trial->fits == true
                          ? fmt::format("together it fits: {}", names)
                          : fmt::format("together it does not fit either: {} ({}{})", names,
                                        advice.together_trial->verdict,
                                        advice.together_trial->reason.empty()
                                            ? ""
                                            : ": " + advice.together_trial->reason));
  }
  return answers;
}

}  // namespace gapless::tools
