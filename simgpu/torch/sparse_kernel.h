// SparseKernel: stands in the place of a kernel for sparse CUDA tensors.
//
//   s = sparse_coo_tensor({{0, 1, 1}, {2, 0, 0}}, values)     3 places, one of them twice
//   s.coalesce()    the indices are known: the CPU's has 2 places, and so has the GPU's
//                   they are not: all 3 are taken to differ, which is told
//   s @ dense       the result's values are not known; the indices, which it only reads, stay known
//
// What a kernel reads back, "how many places", no kernel has computed (ValueKernel does the same
// for tensors that are not sparse).
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace gapless::simgpu {

class SparseKernel final : public c10::OperatorKernel {
 public:
  SparseKernel(const c10::OperatorHandle& op, c10::SafeKernelFunction kernel);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  using Stack = torch::jit::Stack;

  void call_sized(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const;

  c10::SafeKernelFunction kernel_;
  std::vector<bool> reads_;  // for each argument: whether it stays what it is
  bool sized_;  // its result has as many places as its arguments' indices say, where all are sparse
  bool selects_;  // those of an index, whose number is not computed
};

/// Whether there is anything in an operator for one of these.
bool is_for_sparse(const c10::OperatorHandle& op);

}  // namespace gapless::simgpu
