// MemoryKinds: what the blocks of a recording are, by who asked for them and how long they lived.
//
//   forward ......... backward ........ optimizer step .... forward
//   [ activations ----]  (freed in it)
//                     [ gradient -------------------------------]   outlives its backward pass
//                       [ backward ]                                a temporary of it
//                                       [ optimizer states ------------------ outlive their step
//   [ parameters ----------------------------------------------------------- made by Module.to()
//
// It is told by the stacks: PyTorch's functions have names of their own in every version. Where a
// recording has no stacks only lifetimes are left: held to the end, or freed before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless {

/// A rule of the user's: blocks whose stack has a frame with that text in it are of that kind.
struct KindRule {
  std::string text;
  std::string kind;
};

/// What the stack of a request says that it was for.
enum class Asked : std::uint8_t {
  unknown,
  module_move,  // Module.to(), .cuda(), constructors: parameters and buffers
  forward,
  loss,
  backward,
  accumulate,  // AccumulateGrad: a gradient for sure
  optimizer,
  workspace,
};
/// By the surest sign of any of its frames ("file.py:12 forward").
Asked asked_by(const std::vector<std::string>& frames);

struct MemoryKinds {
  /// "parameters", "optimizer states", "gradients", "activations", "loss", "backward",
  /// "optimizer step", "workspaces", "other"; without stacks "held throughout" (from before the
  /// recording to its end), "held to the end", "freed before the end"; and those of rules.
  std::vector<std::string> names;
  std::vector<std::uint8_t> of_block;  // index into `names`, by number of the block
};

/// At most 200 rules; the first that says something of a block decides.
MemoryKinds memory_kinds(const Trace& trace, const std::vector<KindRule>& rules = {});

/// Reads rules: a JSON list of {"frame": "...", "is": "..."}. Throws InputError; `name` stands in
/// errors.
std::vector<KindRule> read_kind_rules(const std::string& text, const std::string& name);

}  // namespace gapless
