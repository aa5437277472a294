// What an operator writes to some places of a tensor is known, though nothing is of the others.
//
//   order = torch.empty(4)                        ? ? ? ?
//   order.scatter_(0, {2, 0}, {5, 6})             6 ? 5 ?
//   order[flags] = 7, flags {0, 1, 0, 1}          6 7 5 7, which the host may read
//
// Which places these are shows where the same operator is computed twice, with zeros for what
// nobody knows and with ones: there it gives the same numbers.
#pragma once

#include <optional>

#include "simgpu/torch/computation.h"

namespace gapless::simgpu {

/// With one number and with another for what nobody knows.
struct InPart {
  Computation with_zeros, with_ones;
};

/// Of an operator that writes to some places of its first argument (in_part), of which not all is
/// known; none where nothing of it can be.
std::optional<InPart> prepare_part(const OperatorFacts& facts, const c10::IValue* arguments);

/// Whether its first argument, `tensor`, holds what is known now.
bool keep_part(const c10::OperatorHandle& op, InPart& part, const at::Tensor& tensor);

}  // namespace gapless::simgpu
