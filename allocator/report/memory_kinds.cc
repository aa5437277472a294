#include "allocator/report/memory_kinds.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "allocator/base/error.h"
#include "allocator/base/json_text.h"
#include "allocator/base/read_budget.h"

namespace gapless {
namespace {

enum Kind : std::uint8_t {
  parameters,
  optimizer_states,
  gradients,
  activations,
  loss,
  backward,
  optimizer_step,
  workspaces,
  throughout,
  held,
  freed,
  other,
  kKinds,
};
constexpr std::array kKindNames = {"parameters",
                                   "optimizer states",
                                   "gradients",
                                   "activations",
                                   "loss",
                                   "backward",
                                   "optimizer step",
                                   "workspaces",
                                   "held throughout",
                                   "held to the end",
                                   "freed before the end",
                                   "other"};

static_assert(kKindNames.size() == kKinds);

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// What one frame says, if anything.
Asked of_frame(std::string_view frame) {
  struct Sign {
    std::string_view text;
    Asked asked;
  };
  static constexpr std::array<Sign, 38> kSigns = {{
      {"getChosenWorkspaceSize", Asked::workspace},
      {"getNewWorkspace", Asked::workspace},
      {"getCUDABlasLtWorkspace", Asked::workspace},
      {"parseChosenWorkspaceSize", Asked::workspace},
      {"WorkspaceSize", Asked::workspace},
      {"cudnn::", Asked::workspace},
      {"AccumulateGrad", Asked::accumulate},
      {"torch::optim::", Asked::optimizer},
      {"optim/", Asked::optimizer},
      {"optim\\", Asked::optimizer},
      {"optimizers/", Asked::optimizer},
      {"optimizer.py", Asked::optimizer},
      {"deepspeed/ops/adam", Asked::optimizer},
      {" cross_entropy", Asked::loss},
      {"cross_entropy_loss", Asked::loss},
      {" nll_loss", Asked::loss},
      {" log_softmax", Asked::loss},
      {"_log_softmax", Asked::loss},
      {"NllLoss", Asked::loss},
      {"LogSoftmaxBackward", Asked::loss},
      {" mse_loss", Asked::loss},
      {" binary_cross_entropy", Asked::loss},
      {" kl_div", Asked::loss},
      {"torch::autograd::Engine::", Asked::backward},
      {"torch::autograd::generated::", Asked::backward},
      {"torch::autograd::Node::", Asked::backward},
      {"autograd/graph.py", Asked::backward},
      {"_engine_run_backward", Asked::backward},
      {" backward", Asked::backward},
      {"module.py:", Asked::forward},  // refined below by the function's name
      {" forward", Asked::forward},
      {"::forward(", Asked::forward},
      {"_call_impl", Asked::forward},
      {"torch::nn::Module::to", Asked::module_move},
      {" _apply", Asked::module_move},
      {" __init__", Asked::module_move},
      {" load_state_dict", Asked::module_move},
      {" from_pretrained", Asked::module_move},
  }};
  for (const Sign& sign : kSigns) {
    if (!has(frame, sign.text)) continue;
    if (sign.text == "module.py:") {
      if (has(frame, " _apply") || has(frame, " convert") || has(frame, " to") ||
          has(frame, " cuda")) {
        return Asked::module_move;
      }
      continue;
    }
    // A program's own folder may be called so: there only a function that steps counts.
    if (sign.asked == Asked::optimizer && !has(frame, "torch::optim::") &&
        frame_kind(frame) != FrameKind::library && !has(frame, " step")) {
      continue;
    }
    return sign.asked;
  }
  return Asked::unknown;
}

// What a whole stack says: the surest sign of any frame.
Asked of_stack(const std::vector<Asked>& frames) {
  const auto any = [&](Asked asked) {
    return std::find(frames.begin(), frames.end(), asked) != frames.end();
  };
  for (const Asked asked : {Asked::workspace, Asked::accumulate, Asked::optimizer, Asked::loss,
                            Asked::backward, Asked::module_move, Asked::forward}) {
    if (any(asked)) return asked;
  }
  return Asked::unknown;
}

// What the stack of each site says, in the order of sites.
std::vector<Asked> asked_at_sites(const Trace& trace) {
  std::vector<Asked> sites(trace.sites.size(), Asked::unknown);
  if (trace.stacks == nullptr) {
    for (std::size_t i = 0; i < sites.size(); ++i) sites[i] = of_frame(trace.sites[i]);
    return sites;
  }
  std::vector<Asked> of_frames;
  of_frames.reserve(trace.stacks->frames.size());
  for (const std::string& frame : trace.stacks->frames) of_frames.push_back(of_frame(frame));
  std::vector<Asked> stack;
  for (std::size_t i = 0; i < trace.site_stacks.size(); ++i) {
    stack.clear();
    for (std::uint32_t node = trace.site_stacks[i]; node != 0;
         node = trace.stacks->nodes[node].parent) {
      stack.push_back(of_frames[trace.stacks->nodes[node].frame]);
    }
    sites[i] = of_stack(stack);
  }
  return sites;
}

// The rule that each site's stack is the first to meet; none: the number of rules.
std::vector<std::uint8_t> rules_at_sites(const Trace& trace, const std::vector<KindRule>& rules) {
  std::vector<std::uint8_t> sites(trace.sites.size(), static_cast<std::uint8_t>(rules.size()));
  for (std::size_t i = 0; i < sites.size(); ++i) {
    std::vector<std::string_view> frames = trace.frames_of(static_cast<std::uint32_t>(i));
    frames.emplace_back(trace.sites[i]);
    for (std::size_t rule = 0; rule < rules.size(); ++rule) {
      if (std::none_of(frames.begin(), frames.end(),
                       [&](std::string_view frame) { return has(frame, rules[rule].text); })) {
        continue;
      }
      sites[i] = static_cast<std::uint8_t>(rule);
      break;
    }
  }
  return sites;
}

// Stacks were recorded without those of C++: what has none was asked for by autograd's own thread.
bool has_only_python(const Trace& trace) {
  if (trace.stacks == nullptr || trace.stacks->frames.size() < 2) return false;
  return std::all_of(trace.stacks->frames.begin() + 1, trace.stacks->frames.end(),
                     [](const std::string& frame) { return is_python_frame(frame); });
}

constexpr std::size_t kNever = SIZE_MAX;

struct Life {
  std::size_t begin = 0;
  std::size_t end = kNever;
  std::uint32_t site = 0;
  bool initial = false;
};

std::vector<Life> lives_of(const Trace& trace) {
  std::vector<Life> lives(trace.blocks);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind == EventKind::alloc) {
      lives[event.block] = {i, kNever, event.site, i < trace.initial_events};
    } else if (event.kind == EventKind::free) {
      lives[event.block].end = i;
    }
  }
  return lives;
}

}  // namespace

Asked asked_by(const std::vector<std::string>& frames) {
  std::vector<Asked> asked;
  asked.reserve(frames.size());
  for (const std::string& frame : frames) asked.push_back(of_frame(frame));
  return of_stack(asked);
}

MemoryKinds memory_kinds(const Trace& trace, const std::vector<KindRule>& rules) {
  MemoryKinds kinds;
  kinds.names.assign(kKindNames.begin(), kKindNames.end());
  for (const KindRule& rule : rules) kinds.names.push_back(rule.kind);
  const std::vector<Asked> asked = asked_at_sites(trace);
  const std::vector<std::uint8_t> ruled = rules_at_sites(trace, rules);
  const std::vector<Life> lives = lives_of(trace);
  // The next event at which the program was at something else: what lives until then outlives the
  // backward pass, or the optimizer's step.
  std::vector<std::size_t> backward_ends(trace.events.size() + 1, kNever);
  std::vector<std::size_t> step_ends(trace.events.size() + 1, kNever);
  bool any_stacks = false;
  const bool only_python = has_only_python(trace);
  for (std::size_t i = trace.events.size(); i-- > 0;) {
    const TraceEvent& event = trace.events[i];
    backward_ends[i] = backward_ends[i + 1];
    step_ends[i] = step_ends[i + 1];
    if (event.kind != EventKind::alloc || event.site == 0) continue;
    any_stacks = true;
    const Asked here = asked[event.site];
    if (here == Asked::forward || here == Asked::optimizer) backward_ends[i] = i;
    if (here == Asked::forward || here == Asked::backward) step_ends[i] = i;
  }
  kinds.of_block.reserve(lives.size());
  for (const Life& life : lives) {
    Kind kind = other;
    const bool to_the_end = life.end == kNever;
    if (ruled[life.site] < rules.size()) {
      kinds.of_block.push_back(static_cast<std::uint8_t>(kKinds + ruled[life.site]));
      continue;
    }
    switch (life.site == 0 ? Asked::unknown : asked[life.site]) {
      case Asked::workspace:
        kind = workspaces;
        break;
      case Asked::accumulate:
        kind = gradients;
        break;
      case Asked::optimizer:
        kind = life.end > step_ends[life.begin] || to_the_end ? optimizer_states : optimizer_step;
        break;
      case Asked::loss:
        kind = loss;
        break;
      case Asked::backward:
        kind = life.end > backward_ends[life.begin] ? gradients : backward;
        break;
      case Asked::module_move:
        kind = life.end > step_ends[life.begin] || to_the_end ? parameters : other;
        break;
      case Asked::forward:
        kind = activations;
        break;
      case Asked::unknown:
        if (life.site != 0 && any_stacks) break;
        if (life.site == 0 && only_python && !life.initial) {
          kind = life.end > backward_ends[life.begin] ? gradients : backward;
        } else {
          kind = !to_the_end ? freed : life.initial ? throughout : held;
        }
        break;
    }
    kinds.of_block.push_back(kind);
  }
  return kinds;
}

std::vector<KindRule> read_kind_rules(const std::string& text, const std::string& name) {
  constexpr std::uint64_t kMostRules = 200;
  ReadBudget budget(name, text.size());
  const nlohmann::json list = parse_json(text, budget, "top level");
  if (!list.is_array()) throw InputError(name, "top level", "expected a list of rules");
  if (list.size() > kMostRules) {
    throw InputError(name, "top level", "more than " + std::to_string(kMostRules) + " rules");
  }
  std::vector<KindRule> rules;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonFields rule(list[i], name, "[" + std::to_string(i) + "]");
    rules.push_back({rule.text("frame"), rule.text("is")});
    if (rules.back().text.empty()) rule.fail("frame", "an empty text is in every frame");
    if (rules.back().kind.empty()) rule.fail("is", "is empty");
  }
  return rules;
}

}  // namespace gapless
