// Flags that are too many to compute, and yet certain, for numbers are finite: all are set, or
// none.
//
//   g.isnan()      none of 16,777,216 is set     .any()  -> false
//   g.isfinite()   (g == g) * (g.abs() != inf)   .all()  -> true
//                   all        all    -> all
//   x[~g.isnan()]  as many rows as x has
//
// They go by the tensor's storage, for as long as nobody has written to it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "simgpu/torch/operator_facts.h"

namespace gapless::simgpu {

/// What x == x, x.isnan(), x < inf ... say of finite numbers; of what asks_if_finite (guesses.h).
bool finite_answer(const std::string& base, const c10::IValue* compared_with);

/// All flags of a fresh tensor have that value.
void note_certain(const at::Tensor& flags, bool value);

/// The value of all flags of that tensor, where it is certain.
std::optional<bool> certain(const at::Tensor& flags);

/// What an operator makes of certain flags, the same for all of its result's numbers: 0 or 1, or
/// how many are set, all results together; nothing where it is another operator, or its flags are
/// not certain.
std::optional<std::int64_t> follows_from_certain(const OperatorFacts& facts,
                                                 const c10::IValue* arguments);

}  // namespace gapless::simgpu
