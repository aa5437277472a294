// What an operator does alike with each element of its lists is known of some, though not of all.
//
//   _foreach_copy_({lengths, hidden}, {given, computed})     of `computed` nobody knows anything
//   {lengths} <- {given}                                     is computed, without the others
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "simgpu/torch/computation.h"

namespace gapless::simgpu {

struct SomeElements {
  std::size_t length = 0;           // of the lists
  std::vector<std::size_t> places;  // in them
  Computation computation;
  std::vector<at::Tensor> written;
};

/// Of such an operator (by_element), with the elements of which something is known; none where
/// there are no such, or nothing is known of what they share.
std::optional<SomeElements> prepare_elements(const OperatorFacts& facts,
                                             const c10::IValue* arguments);

/// Computes them, and gives the numbers to those of the results, the last of `results`, and of what
/// was written.
void keep_elements(const c10::OperatorHandle& op, const OperatorFacts& facts, SomeElements& some,
                   const torch::jit::Stack& results);

}  // namespace gapless::simgpu
