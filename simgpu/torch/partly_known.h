// Where some of an operator's numbers are known and others not, so are those of its result.
//
//   sums = torch.stack([loss, count])             ?    32
//   sums * 2                                      ?    64        place by place
//   order = torch.empty(4)                        ? ? ? ?
//   order.scatter_(0, {2, 0}, {5, 6})             6 ? 5 ?        carried to their places
//   sums.sum()                                    ?              NaN where `loss` is NaN
//
// What an operator carries, it may add up. Which of its results follow from what nobody knows is
// shown by computing it twice, with zeros in its place and with what no sum makes the same: NaN,
// and one where numbers are integers.
#pragma once

#include <optional>
#include <vector>

#include "simgpu/torch/computation.h"

namespace gapless::simgpu {

struct InPart {
  Computation computed;
  std::optional<Computation> other;        // what it carries, with other numbers
  bool of_floats = false;                  // among them NaN
  std::vector<at::Tensor> unknown_places;  // flags of each argument, place by place
};

/// Of an operator (OperatorFacts::InPart) of whose arguments not all is known; none where nothing
/// of its results can be.
std::optional<InPart> prepare_part(const OperatorFacts& facts, const c10::IValue* arguments);

/// Gives what is known to the operator's results, the last of `results`, or to what it has written,
/// and leaves the others as they are.
void keep_part(const c10::OperatorHandle& op, const OperatorFacts& facts, InPart& part,
               const torch::jit::Stack& results, const std::vector<at::Tensor>& written);

}  // namespace gapless::simgpu
