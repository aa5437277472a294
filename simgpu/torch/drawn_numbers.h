// Numbers that nobody knows, and yet how large they are: they were drawn, and not changed since.
//
//   w.normal_(0, 0.02)     one that stands for them: 0.01
//   (w > 0.06).any()       none is, and torch's trunc_normal_ draws no more of them
//   w.add_(1)              nothing is known any more
//
// In general position, as guesses.h has it: beside the mean, not at it.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "simgpu/torch/operator_facts.h"

namespace gapless::simgpu {

/// An operator has written to that tensor with those arguments, whose numbers are not known.
void note_written(const OperatorFacts& facts, const c10::IValue* arguments,
                  const at::Tensor& written);

/// A number that is like those of that tensor, where they were drawn.
std::optional<double> drawn_number(const at::Tensor& tensor);

}  // namespace gapless::simgpu
