// Computation: an operator that is run on the CPU, with twins in place of what lies on the device.
//
//   aten::add.Tensor(a, b), whose numbers are known
//     prepare     twin_of(a), twin_of(b)         before the CUDA kernel, which may write to them
//     compute     the same operator -> c
//     keep        what the CUDA kernel allocated for its result holds the numbers of c
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "simgpu/torch/device_tensor.h"
#include "simgpu/torch/operator_facts.h"

namespace gapless::simgpu {

/// What is known of a tensor that stands for that argument; kNone also where that is too much to
/// compute with.
int known_of(const at::Tensor& tensor, const OperatorFacts::Argument& fact);

/// The least that is known of what an operator reads, from that argument on.
int least_known(const OperatorFacts& facts, const c10::IValue* arguments, std::size_t from = 0);

/// What becomes another, as far as is known where its numbers are not computed.
std::vector<at::Tensor> written_by(const OperatorFacts& facts, const c10::IValue* arguments,
                                   bool computes);

struct Computation {
  torch::jit::Stack stack;          // arguments, then results
  std::vector<at::Tensor> written;  // twins of what the operator writes to
  int knowledge = kKnown;
  bool done = false;
};

/// Of arguments of which something is known (least_known), which is that much.
Computation prepare(const OperatorFacts& facts, const c10::IValue* arguments, int knowledge);

/// False where the CPU has no such operator, or it ends with an error.
bool compute(const c10::OperatorHandle& op, Computation& computation);

/// Gives the numbers to the operator's results, the last of `results`, and to what it has written.
/// What has not the CPU's sizes, nobody knows.
void keep(const OperatorFacts& facts, const Computation& computation, torch::jit::Stack& results,
          const std::vector<at::Tensor>& written);

}  // namespace gapless::simgpu
